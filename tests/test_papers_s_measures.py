"""The S-measures experiments: what the pieces compute, and verdicts that follow the numbers."""

import pytest
import torch

import evalgrad as eg
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.fetched import mapped
from evalgrad_lab.models.unet import UNet
from reproductions.s_measures import sized
from reproductions.s_measures.digits import DIGITS, PROJECTIONS
from reproductions.s_measures.literal import LAMBDA_STEP, MU_STEP
from reproductions.s_measures.masks import MASKS, SCENES_TABLE
from reproductions.s_measures.regulariser import Regulariser
from reproductions.s_measures.sized import WIDTH, Sized, sized_classifier, sized_unet
from reproductions.s_measures.training import (
    THRESHOLDS,
    quality,
    size_labels,
    train_digits,
    train_measure,
)

DIGIT_SETTINGS = {
    "data": "s-digits",
    "seed": 0,
    "project": "epoch",
    "learning_rate": 0.01,
    "epochs": 1,
}


def weights(hidden, alpha, solver):
    return train_digits(hidden=hidden, alpha=alpha, solver=solver, **DIGIT_SETTINGS)["weights"]


@pytest.mark.parametrize("solver", ["ratio", "lagrangian", "paper"])
def test_the_size_node_moves_a_shared_layer_and_nothing_else(solver):
    assert weights(0, 0.01, solver) == weights(0, 0.0, solver)
    assert weights(4, 0.01, solver) != weights(4, 0.0, solver)


def test_projections_are_counted_per_epoch_and_per_step():
    settings = {
        "seed": 0,
        "size": [250, 20, 20],
        "solver": "lagrangian",
        "learning_rate": 0.01,
        "epochs": 2,
    }
    assert train_measure(project="epoch", **settings)["projections"] == 2
    # 250 items in batches of 100, the rest left out
    assert train_measure(project="step", **settings)["projections"] == 2 * 2


def test_the_papers_way_steps_once_per_epoch():
    labels = torch.tensor([1, 1, 0, 0])
    regulariser = Regulariser(labels, 1.0, "paper")
    measure, scores = regulariser.measure, torch.tensor([2.0, -1.0, 0.5, -3.0])
    regulariser.loss(scores, labels, torch.arange(4))
    with torch.no_grad():
        measure.tau.mul_(0.5)
    regulariser.after_epoch(None)
    assert regulariser.projections == 1
    torch.testing.assert_close(measure.mu, torch.tensor(MU_STEP * (0.25 + 0.25 - 1)))
    torch.testing.assert_close(measure.lam, LAMBDA_STEP * (0.25 - scores[:2]))


def test_the_certificate_is_a_bound():
    scores, labels = (
        torch.randn(40, generator=torch.Generator().manual_seed(0)),
        torch.arange(40) % 4 == 0,
    )
    bound = Regulariser(labels, 0.0).certificate(scores, labels)
    assert 0 <= bound <= 100 * eg.metrics.fbeta_score(scores, labels).item()


def test_the_sized_networks_score_images_and_pixels():
    digits, size = sized_classifier(256, 4)(torch.zeros(3, 256))
    assert (digits.shape, size.shape) == ((3, 10), (3,))
    torch.manual_seed(0)
    sized = sized_unet(1, 2).eval()
    torch.manual_seed(0)
    plain, images = UNet(1, 2, WIDTH).eval(), torch.randn(2, 1, 16, 24)
    assert torch.equal(sized(images)[0], plain(images))


def test_one_class_quality_averages_the_papers_thresholds():
    chances = torch.tensor([[0.62, 0.9, 0.5, 0.1]])
    target = torch.tensor([[[1, 1, 0, 0]]])

    logits = torch.logit(chances).view(1, 1, 1, 4)
    fixed = Sized(torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity())

    by_hand = [
        ((chances > t) & (target[0] == 1)).sum() / ((chances > t) | (target[0] == 1)).sum()
        for t in THRESHOLDS
    ]
    assert quality(fixed, Part(logits, target)) == pytest.approx(100 * sum(by_hand).item() / 3)


def test_sizes_come_from_the_masks():
    masks = torch.zeros(3, 4, 4, dtype=torch.int64)
    masks[0, :3], masks[1, 0] = 1, 1
    # the mean foreground is 16 / 3
    assert size_labels("strokes", masks, 0.05).tolist() == [1, 0, 0]
    # Background and class 1 both cover more than a fifth of the first image: two of two votes.
    assert size_labels("scenes", masks, 0.2).tolist() == [1, 1, 1]
    assert size_labels("scenes", masks, 0.3).tolist() == [0, 0, 1]


def experiment_1(**changes):
    names = ["baseline", "alpha 0.01"]
    return {
        "linear weights": {name: ["a"] for name in names},
        "ours": {"baseline": [93.0, 94.0], "alpha 0.01": [93.1, 93.8]},
        "course": {name: [90.0, 91.0] for name in names},
        "validation": dict.fromkeys(names, 90.0),
        "paper's steps": {name: [93.0, 94.0] for name in names},
    } | changes


def test_experiment_1_is_judged_by_its_numbers():
    judged = DIGITS.verdict(experiment_1())
    assert judged.direction == "other"
    assert "bitwise identical" in judged.sentence
    better = {"baseline": [93.0, 94.0], "alpha 0.01": [95.0, 96.0]}
    assert DIGITS.verdict(experiment_1(ours=better)).direction == "partly"
    moved = {"baseline": ["a"], "alpha 0.01": ["b"]}
    assert (
        DIGITS.verdict(experiment_1(ours=better, **{"linear weights": moved})).direction == "same"
    )


def projections(epoch, step, certificate):
    ways = ["ratio epoch", "lagrangian epoch", "lagrangian step", "paper epoch", "paper step"]
    accuracy = {way: epoch if way.endswith("epoch") else step for way in ways}
    bounds = {way: certificate if way.endswith("epoch") else [60.0, 61.0] for way in ways}
    return {"projections": {"epoch": 40, "step": 440}, "accuracy": accuracy, "certificate": bounds}


def test_projections_are_judged_by_their_numbers():
    assert (
        PROJECTIONS.verdict(projections([94.0, 95.0], [94.1, 94.9], [60.0, 61.0])).direction
        == "same"
    )
    assert (
        PROJECTIONS.verdict(projections([94.0, 95.0], [94.1, 94.9], [10.0, 11.0])).direction
        == "partly"
    )
    worse = projections([90.0, 91.0], [94.0, 95.0], [10.0, 11.0]) | {
        "projections": {"epoch": 440, "step": 440}
    }
    assert PROJECTIONS.verdict(worse).direction == "other"


def test_experiments_2_and_3_are_judged_by_their_numbers():
    def one_class(regularised):
        both = {"baseline": [50.0, 51.0], "alpha 0.01": regularised}
        return {
            "ours": both,
            "validation": {"baseline": 50.0, "alpha 0.01": 50.0},
            "paper's steps": both,
        }

    assert MASKS.verdict(one_class([52.0, 53.0])).direction == "same"
    assert MASKS.verdict(one_class([48.0, 49.0])).direction == "other"
    assert (
        SCENES_TABLE.verdict({"baseline": [50.0, 51.0], "regularised": [52.0, 53.0]}).direction
        == "same"
    )
    assert (
        SCENES_TABLE.verdict({"baseline": [52.0, 53.0], "regularised": [50.0, 51.0]}).direction
        == "other"
    )


def test_s_mnist_has_each_size_in_half_of_the_images(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    part = Part(torch.rand(40, 28, 28, generator=generator), torch.arange(40) % 10)
    monkeypatch.setattr(sized, "images", lambda name: (part, part))
    monkeypatch.setattr(sized, "MNIST_TRAIN", 24)
    monkeypatch.setattr(sized, "MNIST_VALIDATION", 16)
    split = sized.s_mnist(0)
    assert [len(p) for p in (split.train, split.validation, split.test)] == [24, 16, 40]
    pixels, (digit, large) = (
        split.test.inputs.view(40, 28, 28) / 3 + 0.3,
        split.test.target.unbind(1),
    )
    assert digit.tolist() == part.target.tolist()
    assert large.sum() == 20
    assert torch.allclose(pixels[large == 1], part.inputs[large == 1], atol=1e-6)
    inner = pixels[large == 0][:, 7:21, 7:21]
    assert torch.allclose(
        inner, torch.nn.functional.avg_pool2d(part.inputs[large == 0], 2), atol=1e-6
    )
    assert pixels[large == 0].sum() == pytest.approx(inner.sum().item(), rel=1e-4)


def test_nucleus_tiles_are_apart_and_keep_their_masks(monkeypatch):
    image = torch.arange(64 * 64, dtype=torch.float32).view(64, 64)
    monkeypatch.setattr(mapped, "nuclei", lambda: (image, (image % 7 == 0).long()))
    split = mapped.nucleus_tiles(0, Sizes(2, 1, 1))
    pixels = torch.cat([part.inputs for part in (split.train, split.validation, split.test)])
    masks = torch.cat([part.target for part in (split.train, split.validation, split.test)])
    values = (pixels[:, 0] * image.std() + image.mean()).round()
    assert sorted(values.flatten().tolist()) == image.flatten().tolist()
    assert torch.equal(masks == 1, values % 7 == 0)
