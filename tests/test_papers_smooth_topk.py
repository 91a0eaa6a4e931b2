"""What the experiments of the smooth top-k paper compute: verdicts that follow the numbers, crops,
algorithms, tuning.
"""

import itertools

import pytest
import torch

import evalgrad as eg
from reproductions.smooth_topk import (
    algorithms,
    crops,
    margin,
    measurements,
    noise,
    overflow,
    speed,
    subsets,
    temperature,
    training,
)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def noise_numbers(ours, theirs, top1=5.0):
    """Two noise levels: the accuracies of L5,0.1 and of cross-entropy in top-5; in top-1 `top1`
    points apart.
    """
    top5 = {
        "CE": [[v] for v in theirs],
        "CE last": [[v] for v in theirs],
        "L5,1": [[v] for v in ours],
        "L5,0.1": [[v] for v in ours],
    }
    flat = {name: [[50.0 + (0 if name.startswith("CE") else top1)]] * len(ours) for name in top5}
    return {"noise": [0.0, 1.0], "top5": top5, "top1": flat}


@pytest.mark.parametrize(
    ("ours", "theirs", "top1", "direction"),
    [
        ((98, 91), (99, 88), 5, "same"),
        ((98, 91), (99, 88), -5, "partly"),
        ((99, 88), (98, 91), -5, "other"),
    ],
)
def test_verdict_on_noise_follows_the_numbers(ours, theirs, top1, direction):
    verdict = noise.verdict(noise_numbers(ours, theirs, top1))
    assert verdict.direction == direction
    assert f"{ours[1] - theirs[1]:+.1f} at p = 1" in verdict.sentence


def temperature_numbers(narrow, wide, density):
    width = {"narrow": narrow, "wide": wide}
    return {"temperature": [0.0, 1.0], "density": density} | {
        name: {"train": [[v] for v in values], "test": [[v] for v in values]}
        for name, values in width.items()
    }


@pytest.mark.parametrize(
    ("narrow", "wide", "density", "direction"),
    [
        ((5, 60), (10, 99), (2, 100), "same"),
        ((5, 60), (99, 99), (2, 100), "partly"),
        ((60, 5), (99, 10), (100, 2), "other"),
    ],
)
def test_verdict_on_temperature_follows_the_numbers(narrow, wide, density, direction):
    assert (
        temperature.verdict(temperature_numbers(narrow, wide, list(density))).direction == direction
    )


def share_numbers(gains):
    ways = {"CE": {way: [[80.0]] * 2 for way in subsets.PREDICTIONS}}
    return {
        "share": [100, 5],
        **ways,
        "L5,0.1": {way: [[80.0 + gain] for gain in gains] for way in subsets.PREDICTIONS},
    }


@pytest.mark.parametrize(
    ("gains", "direction"), [((0, 2), "same"), ((-3, -1), "partly"), ((2, -2), "other")]
)
def test_verdict_on_shares_follows_the_numbers(gains, direction):
    assert subsets.verdict_shares(share_numbers(gains)).direction == direction


@pytest.mark.parametrize(
    ("boost", "direction"), [((1, 1), "same"), ((3, -1), "partly"), ((-1, -1), "other")]
)
def test_verdict_on_crops_follows_the_numbers(boost, direction):
    numbers = {"share": [100, 5]}
    for name, gain in zip(("CE", "L5,0.1"), boost):
        numbers[name] = {"softmax": [[80.0]] * 2, "marginals": [[80.0 + gain]] * 2}
    assert subsets.verdict_crops(numbers).direction == direction


@pytest.mark.parametrize(
    ("top1", "top5", "direction"), [(1, 1, "same"), (1, -1, "partly"), (-1, -1, "other")]
)
def test_verdict_on_margin_follows_the_numbers(top1, top5, direction):
    numbers = {
        name: {"0": [70.0, 71.0], "1": [70.0 + gain, 71.0 + gain]}
        for name, gain in (("top1", top1), ("top5", top5))
    }
    assert margin.verdict(numbers).direction == direction


@pytest.mark.parametrize(
    ("slow", "custom", "direction"), [(2, 0.1, "same"), (2, 5, "partly"), (90, 5, "other")]
)
def test_verdict_on_times_follows_the_numbers(slow, custom, direction):
    both = {"DC (AD)": [1.0, 1.0], "DC (CB)": [1.0, custom], "ours": [0.1, 0.1]}
    numbers = {
        "n": [10, 100],
        "forward": {"SA": [1.0, 10.0], "DC": [1.0, slow], "ours": [0.1, 0.2]},
        "both": both,
    }
    assert speed.verdict(numbers).direction == direction


@pytest.mark.parametrize(
    ("finite", "log", "direction"),
    [((True, False), True, "same"), ((True, True), True, "partly"), ((True, True), False, "other")],
)
def test_verdict_on_overflow_follows_the_numbers(finite, log, direction):
    rows = [
        {
            "SA": {"single": single, "double": True},
            "DC log": {"single": log, "error": 1.0},
            "ours": {"error": 0.0},
        }
        for single in finite
    ]
    assert overflow.verdict({"temperature": [1.0, 0.1], "found": rows}).direction == direction


@pytest.mark.parametrize(
    "algorithm", [algorithms.divide_and_conquer, algorithms.summation, algorithms.linear_summation]
)
def test_algorithms_of_the_paper_agree_with_the_sum_over_subsets(algorithm):
    x = torch.randn(3, 7, dtype=torch.float64)
    expected = [
        sum(x[:, list(chosen)].sum(1).exp() for chosen in itertools.combinations(range(7), k))
        for k in range(1, 4)
    ]
    torch.testing.assert_close(algorithm(x, 3)[:, 1:], torch.stack(expected, 1).log())


@pytest.mark.parametrize("name", list(measurements.BOTH))
def test_timed_functions_compute_the_same_loss_and_gradient(name):
    scores, target = measurements.draw(6, 12, deviation=1.0)
    value, gradient = measurements.BOTH[name](scores.double(), target, 5, 1.0, 1.0)
    leaf = scores.double().requires_grad_()
    expected = eg.smooth_topk_loss(leaf, target, k=5, reduction="none")
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(
        gradient, torch.autograd.grad(expected.sum(), leaf)[0], atol=2e-3, rtol=1e-2
    )


def test_nine_crops_are_shifts_and_the_fifth_is_the_image():
    images = torch.arange(2 * 32.0).view(2, 32)
    found = crops.nine_crops(images)
    assert torch.equal(found[:, 4], images)
    assert torch.equal(found[:, 0].view(2, 4, 8)[:, 1:, 1:], images.view(2, 4, 8)[:, :-1, :-1])
    assert torch.equal(found[:, 0].view(2, 4, 8)[:, 0], torch.zeros(2, 8))


def test_crops_are_averaged_by_softmax_and_by_marginals_over_all_subsets():
    k, classes, images = 2, 4, 30
    scores = 3 * torch.randn(images, 9, classes)
    target = torch.randint(classes, (images,))
    subsets_of_k = list(itertools.combinations(range(classes), k))
    chance = torch.stack(
        [scores[..., list(chosen)].sum(-1) for chosen in subsets_of_k], -1
    ).softmax(-1)
    member = torch.tensor(
        [[c in chosen for c in range(classes)] for chosen in subsets_of_k]
    ).float()
    averages = {
        "softmax": scores.softmax(-1).mean(1),
        "marginals": (chance @ member).mean(1),
        "one crop": scores[:, 4],
    }
    found = crops.crop_accuracies(
        lambda z: scores.flatten(0, 1), torch.zeros(images, 32), target, k
    )
    for way, average in averages.items():
        hits = (average.topk(k).indices == target[:, None]).any(1)
        assert found[way] == pytest.approx(100 * hits.float().mean().item())
    assert found["softmax"] != found["marginals"]


def test_density_of_the_hinge_is_two_classes_and_of_a_high_temperature_all():
    common = {"data": "digits", "seed": 0, "sizes": (50, 10, 10), "width": 8}
    assert 0 < training.gradient_density(temperature=0.0, **common) <= 2.0  # of 100 classes
    assert training.gradient_density(temperature=10.0, **common) == 100.0


def test_training_learns_and_repeats_exactly():
    settings = {
        "data": "digits",
        "seed": 0,
        "sizes": (200, 50, 50),
        "objective": training.smooth(0.1),
    }
    settings |= {"learning_rate": 0.01, "weight_decay": 0.01, "width": 32}
    short, again, long = (training.train_pairs(steps=steps, **settings) for steps in (2, 2, 60))
    assert short == again
    assert long["train"]["top5"] > short["train"]["top5"] + 20
    assert long["best"]["validation"] >= short["best"]["validation"]
