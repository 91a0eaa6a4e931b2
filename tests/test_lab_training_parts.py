"""The parts of `evalgrad train`: splits, order, augmentation, metrics over batches and ranks,
phases, early stopping.
"""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from training_data import write_segmentation, write_table

from evalgrad import metrics
from evalgrad_lab import schedules
from evalgrad_lab.cli import main
from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.examples import Column, Examples, split
from evalgrad_lab.data.files import folders
from evalgrad_lab.data.files.reading import statistics
from evalgrad_lab.data.loading import (
    EpochOrder,
    Items,
    Loading,
    loader,
    mixed_seed,
    steps_per_epoch,
)
from evalgrad_lab.training import objective
from evalgrad_lab.training.goals import parse_goal
from evalgrad_lab.training.module import Pace, Training


def rows(count, classes=2, lists=None):
    targets = [torch.tensor(i % classes) for i in range(count)]
    return Examples(
        Column(list(torch.randn(count, 3))), Column(targets), [str(i) for i in range(count)], lists
    )


# ---- splits and normalisation
# ------------------------------------------------------------------------------------------------


def test_a_split_is_seeded_disjoint_and_keeps_the_shares_of_the_classes():
    examples = rows(50, classes=5)
    train, aside = split(examples, 0.2, seed=1)
    assert sorted(train.names + aside.names, key=int) == examples.names
    assert [sum(int(aside.targets[i]) == c for i in range(len(aside))) for c in range(5)] == [2] * 5
    assert split(examples, 0.2, seed=1)[1].names == aside.names
    assert split(examples, 0.2, seed=2)[1].names != aside.names


def test_a_split_keeps_lists_whole_and_never_takes_all_or_nothing():
    train, aside = split(rows(12, lists=[i // 3 for i in range(12)]), 0.25, seed=0)
    assert not set(train.lists) & set(aside.lists)
    assert (len(train), len(aside)) == (9, 3)
    for fraction in (0.01, 0.99):
        assert min(len(part) for part in split(rows(2, classes=1), fraction, seed=0)) == 1


def test_statistics_are_those_of_all_values():
    examples = rows(20)
    values = torch.stack([examples.inputs[i] for i in range(20)]).double()
    mean, std, same = statistics(examples)
    assert mean == pytest.approx(values.mean(0).tolist())
    assert std == pytest.approx(values.std(0, correction=0).tolist())
    assert same
    constant = Examples(
        Column([torch.full((1, 2, 2), 0.3), torch.full((1, 3, 2), 0.3)]), None, ["a", "b"]
    )
    assert statistics(constant) == (pytest.approx([0.3]), [1.0], False)


def test_images_of_8_and_16_bits_and_colours_are_read_in_the_unit_interval(tmp_path):
    Image.fromarray(np.array([[0, 255]], np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.array([[0, 65535]], np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.array([[[0, 51, 255]]], np.uint8)).save(tmp_path / "colour.png")
    for name in ("grey", "deep"):
        assert folders.read_image(tmp_path / f"{name}.png", grey=True).tolist() == [[[0.0, 1.0]]]
    torch.testing.assert_close(
        folders.read_image(tmp_path / "colour.png", grey=False).flatten(), torch.tensor([0, 0.2, 1])
    )


# ---- order and augmentation
# ------------------------------------------------------------------------------------------------


def test_the_order_depends_on_seed_and_epoch_and_the_ranks_share_it():
    def order(epoch, rank=0, ranks=1, seed=0):
        sampler = EpochOrder(10, seed, rank, ranks, shuffle=True)
        sampler.set_epoch(epoch)
        assert len(sampler) == len(list(sampler))
        return list(sampler)

    assert order(3) == order(3)
    assert len({tuple(i for _, i in order(epoch)) for epoch in range(5)}) == 5
    assert order(0, seed=1) != order(0)
    assert {epoch for epoch, _ in order(3)} == {3}
    parts = [order(2, rank, 3) for rank in range(3)]
    # 10 and two again: all ranks take as many steps
    assert [len(part) for part in parts] == [4, 4, 4]
    assert {i for part in parts for _, i in part} == set(range(10))


def test_validation_is_in_order_and_without_repetition():
    parts = [list(EpochOrder(10, 0, rank, 3, shuffle=False)) for rank in range(3)]
    assert sorted(i for part in parts for _, i in part) == list(range(10))


def test_steps_per_epoch_are_those_of_the_loader():
    for count, size in ((10, 4), (3, 4), (8, 4)):
        loading = Loading(size, seed=0)
        sampler = EpochOrder(count, 0, 0, 1, shuffle=True)
        batches = list(
            loader(Items(rows(count), loading), loading, sampler, drop_last=count >= size)
        )
        assert len(batches) == steps_per_epoch(count, size, ranks=1)


def test_lists_come_whole_with_their_positions():
    examples = rows(9, lists=[0, 1, 2] * 3)
    loading = Loading(2, seed=0)
    first = next(
        iter(loader(Items(examples, loading), loading, EpochOrder(3, 0, 0, 1, shuffle=False)))
    )
    assert first["index"].tolist() == [0, 3, 6, 1, 4, 7]
    assert first["lists"].tolist() == [0, 0, 0, 1, 1, 1]
    assert first["target"].tolist() == [i % 2 for i in first["index"]]


@pytest.mark.parametrize("mode", ["flip", "full"])
def test_image_and_label_map_are_changed_alike_and_always_in_the_same_way(mode):
    label = torch.randint(3, (12, 14)).repeat_interleave(2, 0).repeat_interleave(2, 1)
    image = label[None].float() / 10
    seen = set()
    for seed in range(8):
        change = [
            augment(image, label, torch.Generator().manual_seed(seed), mode, 16, 255)
            for _ in range(2)
        ]
        (first, target), (again, _) = change
        assert torch.equal(first, again)
        assert first.shape == (1, 16, 16)
        assert target.shape == (16, 16)
        if mode == "flip":
            torch.testing.assert_close(first[0] * 10, target.float())
        seen.add(tuple(target.flatten().tolist()))
    assert len(seen) > 4


def test_beyond_the_border_is_void():
    image, target = augment(
        torch.ones(1, 4, 4), torch.ones(4, 4).long(), torch.Generator(), "none", 6, 255
    )
    assert (target == 255).sum() == 36 - 16
    assert torch.equal(image[0] == 1, target == 1)


def test_images_with_a_class_are_moved_not_scaled():
    image = torch.zeros(1, 9, 9)
    image[0, 4, 4] = 1
    places = set()
    for seed in range(40):
        moved, target = augment(
            image, torch.tensor(2), torch.Generator().manual_seed(seed), "full", None, 255
        )
        assert target == 2
        places |= {tuple(place) for place in moved[0].nonzero().tolist()}
    assert len(places) > 10
    assert all(0 <= side <= 8 for place in places for side in place)


def test_seeds_of_different_numbers_differ():
    assert (
        len({mixed_seed(a, b, c) for a in range(10) for b in range(10) for c in range(10)}) == 1000
    )


# ---- metrics
# ------------------------------------------------------------------------------------------------

SCORES, MAPS = torch.randn(7, 3, 5, 4), torch.randint(3, (7, 5, 4))
MAPS[2] = 255
CLASS_SCORES, CLASSES = torch.randn(30, 6), torch.randint(6, (30,))
LINE, LABELS, LISTS = torch.randn(60), torch.randint(2, (60,)), torch.arange(60) % 4


def by_list(function):
    parts = zip(*(values.view(15, 4).T for values in (LINE, LABELS)))  # item i is in list i % 4
    return torch.stack([function(scores, target) for scores, target in parts]).mean()


TRUTH = {
    "miou": lambda: metrics.jaccard_index(SCORES.argmax(1), MAPS, num_classes=3, ignore_index=255),
    "image-miou": lambda: metrics.jaccard_index(
        SCORES.argmax(1), MAPS, num_classes=3, ignore_index=255, over="image"
    ),
    "accuracy": lambda: (CLASS_SCORES.argmax(1) == CLASSES).double().mean(),
    "top2": lambda: 1 - metrics.topk_error(CLASS_SCORES, CLASSES, k=2),
    "ap": lambda: by_list(metrics.average_precision),
    "ndcg@3": lambda: by_list(lambda s, t: metrics.ndcg(s, t, k=3)),
    "f1": lambda: metrics.fbeta_score(LINE, LABELS),
    "recall@precision=0.6": lambda: metrics.recall_at_precision(LINE, LABELS, precision=0.6),
    "precision@recall=.6": lambda: metrics.precision_at_recall(LINE, LABELS, recall=0.6),
}


def batches(task):
    if task == "segmentation":
        return zip(SCORES.split(2), MAPS.split(2), [None] * 4)
    if task == "classification":
        return zip(CLASS_SCORES.split(8), CLASSES.split(8), [None] * 4)
    return zip(LINE.split(16), LABELS.split(16), LISTS.split(16))


@pytest.mark.parametrize("name", TRUTH)
def test_a_metric_over_batches_and_ranks_is_that_of_the_whole(name):
    task = next(
        task for task in ("segmentation", "classification", "ranking") if _is_of(name, task)
    )
    goal = parse_goal(name, task)
    classes = {"segmentation": 3, "classification": 6, "ranking": 2}[task]
    ranks = [goal.measure(classes, 255) for _ in range(2)]
    for i, batch in enumerate(batches(task)):
        ranks[i % 2].update(*batch)
    ranks[0].merge_state(ranks[1])
    torch.testing.assert_close(ranks[0].compute().double(), TRUTH[name]().double())


def _is_of(name, task):
    from evalgrad_lab.errors import UserError

    try:
        return parse_goal(name, task) is not None
    except UserError:
        return False


# ---- phases
# ------------------------------------------------------------------------------------------------


def plan(loss, mix, steps=10, kind="ranking", **options):
    return objective.plan(
        loss, options, kind, schedules.parse_mix(mix), steps, objective.Given(rows(20), 2, 255)
    )


def test_phases_train_the_baseline_first_and_the_schedule_restarts():
    phases = plan("direct_average_precision", "then:0.4")
    assert [phase.steps for phase in phases] == [4, 6]
    module = Training(
        nn.Linear(3, 1),
        "ranking",
        phases,
        Pace(0.5, 0.0, "cosine", 0),
        nn.Identity(),
        in_lists=False,
    )
    rate = module.configure_optimizers()["lr_scheduler"]["scheduler"]
    assert [0.5 * rate.lr_lambdas[0](step) for step in (0, 4)] == [0.5, 0.5]
    scores, target = torch.randn(8), torch.tensor([0, 1] * 4)
    expected = nn.functional.binary_cross_entropy_with_logits(scores, target.float())
    torch.testing.assert_close(phases[0].loss(scores, target), expected)
    torch.testing.assert_close(
        1 - phases[1].loss(scores, target), metrics.average_precision(scores, target).float()
    )


def test_a_sum_has_the_share_of_the_loss():
    (phase,) = plan("direct_average_precision", "sum:0.25", epsilon=0.2)
    scores, target = torch.randn(8), torch.tensor([0, 1] * 4)
    baseline = nn.functional.binary_cross_entropy_with_logits(scores, target.float())
    torch.testing.assert_close(
        phase.loss(scores, target),
        0.75 * baseline + 0.25 * (1 - metrics.average_precision(scores, target)).float(),
    )


def test_s_measures_get_the_labels_of_the_training_data_and_the_index():
    (phase,) = plan("f_beta", "sum:0.5")
    assert phase.takes_index
    phase.loss(torch.randn(20), torch.arange(20) % 2, index=torch.arange(20))
    assert "100 %" in phase.loss.loss.losses[1].diagnostics()["source"]


def test_class_weights_come_from_the_training_data_and_only_when_asked_for():
    targets = [torch.tensor(int(i < 15)) for i in range(20)]
    train = Examples(Column(list(torch.randn(20, 3))), Column(targets), [str(i) for i in range(20)])
    (phase,) = objective.plan(
        "weighted_cross_entropy", {}, "classification", None, 5, objective.Given(train, 2, 255)
    )
    scores = torch.randn(20, 2)
    weights = torch.tensor([20 / (2 * 5), 20 / (2 * 15)])
    expected = nn.functional.cross_entropy(scores, torch.stack(targets), weight=weights)
    torch.testing.assert_close(phase.loss(scores, torch.stack(targets)), expected)


# ---- the engine
# ------------------------------------------------------------------------------------------------


def ranking_arguments(tmp_path, *more):
    data = write_table(tmp_path / "data.csv")
    options = [
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--accelerator",
        "cpu",
        "--group",
        "query",
    ]
    return ["train", "--task", "ranking", "--metric", "f1", *options, "--batch-size", "3", *more]


def test_training_stops_early_and_a_finished_run_is_not_trained_again(tmp_path, capsys):
    arguments = ranking_arguments(
        tmp_path, "--epochs", "40", "--patience", "2", "--learning-rate", "1e-9"
    )
    assert main(arguments) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["epochs"] == 3  # one, and two without a better metric
    weights = (tmp_path / "run" / "best.safetensors").read_bytes()
    assert main(arguments) == 0
    assert "holds this run, finished" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == weights


def test_iterations_are_rounded_up_to_epochs_and_never_resume_begins_again(tmp_path, capsys):
    # 5 lists to train on: one step of 3 lists in each epoch
    arguments = ranking_arguments(tmp_path, "--iterations", "3")
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 3
    assert main([*arguments, "--seed", "1", "--resume", "never"]) == 0
    assert "going on" not in capsys.readouterr().out
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["global_step"] == 3


INTERRUPTED_NET = """
import pathlib, torch

class Net(torch.nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)

    def forward(self, x):
        if pathlib.Path("stop").exists() and self.training:
            raise KeyboardInterrupt
        return super().forward(x)
"""


def test_ctrl_c_leaves_no_result_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interrupted_net.py").write_text(INTERRUPTED_NET)
    (tmp_path / "stop").touch()
    handler = signal.getsignal(signal.SIGINT)
    arguments = ranking_arguments(tmp_path, "--epochs", "2", "--model", "interrupted_net:Net")
    assert main(arguments) == 130
    assert (
        "interrupted; what is finished is kept, the same command goes on."
        in capsys.readouterr().err
    )
    assert signal.getsignal(signal.SIGINT) is handler
    assert not (tmp_path / "run" / "result.json").exists()
    (tmp_path / "stop").unlink()
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["epochs"] == 2


def test_a_loss_that_overflows_is_told(tmp_path, capsys):
    arguments = ranking_arguments(
        tmp_path,
        "--epochs",
        "9",
        "--learning-rate",
        "1e25",
        "--loss",
        "bce",
        "--schedule",
        "constant",
    )
    assert main(arguments) == 2
    assert "the loss was not finite in epoch" in capsys.readouterr().err


def test_two_processes_train_and_measure_what_one_measures(tmp_path, capsys):
    data = write_segmentation(tmp_path / "data" / "train", count=6)
    write_segmentation(tmp_path / "data" / "val", count=3, seed=1)
    arguments = [
        "train",
        "--task",
        "segmentation",
        "--metric",
        "image-miou",
        "--data",
        str(data.parent),
        "--out",
        str(tmp_path / "run"),
    ]
    arguments += [
        "--epochs",
        "2",
        "--batch-size",
        "2",
        "--model-options",
        '{"width": 4}',
        "--accelerator",
        "cpu",
    ]
    # lightning starts the other process by running the script again
    script = tmp_path / "command.py"
    script.write_text(
        "import sys, torch\nfrom evalgrad_lab.cli import"
        " main\ntorch.set_num_threads(1)\nsys.exit(main())\n"
    )
    command = [sys.executable, str(script), *arguments, "--devices", "2", "--strategy", "ddp"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["steps"] == 2  # three images on each of the two ranks are one batch
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(data.parent)]) == 0
    assert float(capsys.readouterr().out.split()[1]) == pytest.approx(
        result["validation"], abs=1e-6
    )


def test_two_processes_train_as_one_on_the_union_of_their_batches(tmp_path):
    """F1 counts over the whole batch: without the exchange the two runs would drift apart."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(25, 2, generator=generator)  # 20 of them to train on: two steps an epoch
    lines = [f"{a:.4f},{b:.4f},{int(a + b > 0.5)}" for a, b in rows.tolist()]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["a,b,target", *lines]) + "\n")
    script = tmp_path / "command.py"
    script.write_text(
        "import sys, torch\nfrom evalgrad_lab.cli import"
        " main\ntorch.set_num_threads(1)\nsys.exit(main())\n"
    )
    weights = []
    for devices, batch in ((1, 10), (2, 5)):
        out = tmp_path / f"run{devices}"
        options = [
            "--task",
            "ranking",
            "--metric",
            "f1",
            "--data",
            data,
            "--out",
            out,
            "--epochs",
            "3",
            "--batch-size",
            batch,
        ]
        options += [
            "--accelerator",
            "cpu",
            "--devices",
            devices,
            "--strategy",
            "ddp" if devices > 1 else "auto",
        ]
        subprocess.run(
            [sys.executable, script, "train", *map(str, options)],
            check=True,
            capture_output=True,
            timeout=300,
        )
        state = torch.load(out / "last.ckpt", weights_only=True)["state_dict"]
        weights.append(
            {name: tensor for name, tensor in state.items() if name.startswith("network.")}
        )
    one, two = weights
    assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)
