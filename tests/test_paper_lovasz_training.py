"""The trained experiments of the Lovász paper: what their pieces compute, and verdicts that turn
with the numbers.
"""

import gzip
import struct

import pytest
import torch
from scipy.optimize import minimize

from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.fit import Every, Pace
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from reproductions import training
from reproductions.experiment import SkippedError
from reproductions.lovasz import (
    binary,
    binary_pieces,
    brain,
    brain_pieces,
    enet,
    enet_pieces,
    per_class,
    per_class_pieces,
    prox,
    prox_pieces,
    scenes,
    scenes_pieces,
)


def test_equibatches_visit_every_class_that_occurs():
    target = torch.tensor([[0, 0], [0, 0], [0, 3], [0, 1]])
    part = Part(torch.zeros(4, 1), target)
    batches = training.equibatches(part, scenes_pieces.class_table(target), 3, seed=0)
    for epoch in range(5):
        (batch,) = batches(epoch)
        assert {0, 1, 3} == set(batch.target.flatten().tolist())


def test_training_follows_the_schedule_and_ends_ready_to_predict():
    """With the gradient +1 Adam moves by the learning rate: the weight falls by the sum of (1 -
    k/n)^0.9.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    start, part, seen = model.weight.item(), Part(torch.ones(4, 1), torch.zeros(4)), []
    pace = Pace(0.1, optimiser="adam", schedule="poly")
    hooks = [Every(1, seen.append)]
    training.train(model, lambda scores, _: scores.mean(), in_memory(part, 2, 0), pace, 3, hooks)
    assert model.weight.item() == pytest.approx(
        start - 0.1 * sum((1 - k / 3) ** 0.9 for k in range(3)), abs=1e-5
    )
    assert seen == [1, 2, 3]
    assert not model.training


def test_threshold_is_found_on_scores_that_are_off():
    target = (torch.arange(100).view(1, 10, 10) >= 70).long()
    scores = torch.arange(100.0).view(1, 10, 10)  # everything is above 0
    threshold = binary_pieces.best_threshold(scores, target)
    # score 0 is not above 0
    assert binary_pieces.image_iou(scores, target) == pytest.approx(100 * 30 / 99)
    assert binary_pieces.image_iou(scores, target, threshold) > 95


def test_false_alarms_count_empty_images():
    target = torch.tensor([[[0, 0]], [[0, 0]], [[0, 1]]])
    scores = torch.tensor([[[-1.0, 1.0]], [[-1.0, -1.0]], [[1.0, 1.0]]])
    assert binary_pieces._false_alarms(scores, Part(scores, target)) == 50
    assert binary_pieces._false_alarms(scores[2:], Part(scores[2:], target[2:])) is None


def test_fine_tuning_starts_every_loss_from_the_network_of_cross_entropy(monkeypatch):
    """Where further training does nothing, all losses are judged on the network that cross-entropy
    gives from scratch.
    """
    setting = {"data": "strokes", "sizes": [16, 8, 8], "seed": 0}
    base = {"learning_rate": 0.01, "iterations": 3}
    names = ["cross-entropy", "Lovász hinge"]
    further = {
        **setting,
        "base": base,
        "names": names,
        "learning_rates": [0.01, 0.02],
        "iterations": 2,
    }
    moved = binary_pieces.fine_tune_binary(**further)
    alone = binary_pieces.fine_tune_binary(
        **{**further, "names": names[1:], "learning_rates": [0.02]}
    )
    assert alone[names[1]] == moved[names[1]][1:]  # whatever was trained before it
    scratch = binary_pieces.train_binary(**setting, **base, loss="cross-entropy")
    real = training.train
    monkeypatch.setattr(
        binary_pieces,
        "train",
        lambda network, *rest: real(network, *rest) if rest[-1] == 3 else network,
    )
    assert binary_pieces.fine_tune_binary(**further) == {name: [scratch, scratch] for name in names}
    values = [result["losses"]["hinge"] for name in names for result in moved[name]]
    assert len({*values, scratch["losses"]["hinge"]}) == 5


def test_rate_of_further_training_is_the_best_on_validation():
    runs = [[{"validation": 5}, {"validation": 6}], [{"validation": 9}, {"validation": 1}]]
    found = training.best_forks(["hinge"], [{"hinge": run} for run in runs], [0.1, 0.2])["hinge"]
    assert found.point == {"learning_rate": 0.1}
    assert found.results == [{"validation": 5}, {"validation": 9}]
    alone = training.best_forks(["hinge"], [{"hinge": runs[0]}], [0.1, 0.2])
    assert alone["hinge"].point == {"learning_rate": 0.2}


def matrix(gain, own=0.0):
    """Image IoU of the Lovász hinge `gain` over the others, with `own` on the diagonal and 0.5
    beside it.
    """
    iou = {"cross-entropy": 57.0, "hinge": 56.0, "Lovász hinge": 57.0 + gain}
    return {
        loss: (
            {name: own if loss == name else 0.5 for name in iou}
            | {
                "iou": iou[loss],
                "iou with threshold": iou[loss],
                "size of scores": 0.3,
                "by seed": [iou[loss], iou[loss] + 1],
            }
        )
        for loss in iou
    }


def test_matrix_verdict_follows_the_numbers():
    verdict = binary.MATRIX.verdict({"scratch": matrix(3.0), "fine-tuned": matrix(2.0)})
    assert verdict.direction == "same"
    assert "+2.0 [+2.0, +2.0] points from that of the better" in verdict.sentence
    assert "hardly leaves" not in verdict.sentence
    partly = binary.MATRIX.verdict({"scratch": matrix(-3.0, own=1.0), "fine-tuned": matrix(2.0)})
    assert partly.direction == "partly"
    assert "stays at 1.00 with scores of size 0.30" in partly.sentence
    assert (
        binary.MATRIX.verdict(
            {"scratch": matrix(-3.0, own=0.7), "fine-tuned": matrix(-2.0, own=0.7)}
        ).direction
        == "other"
    )


def test_prior_work_verdict_follows_the_numbers():
    def found(ours, theirs):
        return {"Lovász hinge": {"by seed": ours}, "soft Jaccard": {"by seed": theirs}}

    def direction(scratch, fine_tuned):
        return binary.PRIOR_WORK.verdict({"scratch": scratch, "fine-tuned": fine_tuned}).direction

    ahead, behind, mixed = (
        found([61, 62], [60, 60]),
        found([58, 59], [60, 61]),
        found([63, 60], [60, 61]),
    )
    assert direction(ahead, ahead) == "same"
    assert (
        direction(behind, ahead) == direction(ahead, behind) == direction(mixed, behind) == "partly"
    )
    assert direction(behind, behind) == "other"


def test_one_class_scores_are_log_odds():
    logits = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    model = per_class_pieces.OneClass(torch.nn.Identity(), 2)
    torch.testing.assert_close(torch.sigmoid(model(logits)), logits.softmax(1)[:, 2])


def test_half_of_the_images_have_the_class():
    target = torch.tensor([[0, 2], [1, 2], [2, 2], [1, 0], [0, 0], [1, 1], [3, 0]])
    part = per_class_pieces.half_with(Part(torch.arange(7.0)[:, None], target), 1)
    assert sorted(part.inputs[part.target.any(1)].flatten().tolist()) == [1, 3, 5]
    assert len(part) == 6


def test_rate_of_fine_tuning_is_chosen_over_classes_and_seeds():
    runs = [
        {
            "tuned": {
                loss: [[{"validation": a}, {"validation": b}] for a, b in pairs]
                for loss in binary_pieces.EVALUATED
            }
        }
        for pairs in ([(9, 0), (5, 6)], [(1, 1), (2, 3)])
    ]
    assert per_class.choose(runs, [0.1, 0.2])["hinge"].point == {"learning_rate": 0.2}


def test_per_class_verdict_follows_the_numbers():
    names = binary_pieces.EVALUATED
    iou = {"base": [70, 70], "cross-entropy": [71, 71], "hinge": [70, 70], "Lovász hinge": [75, 75]}
    losses = {loss: {name: [float(loss != name)] * 2 for name in names} for loss in names}
    assert per_class.PER_CLASS.verdict({"iou": iou, "losses": losses}).direction == "same"
    assert (
        per_class.PER_CLASS.verdict(
            {"iou": iou | {"Lovász hinge": [60, 60]}, "losses": losses}
        ).direction
        == "partly"
    )
    losses = {loss: {name: [float(loss == name)] * 2 for name in names} for loss in names}
    assert (
        per_class.PER_CLASS.verdict(
            {"iou": iou | {"Lovász hinge": [60, 60]}, "losses": losses}
        ).direction
        == "other"
    )


def table_2(gain, equi, longer):
    rows = {}
    for loss, first, second, third in (
        ("cross-entropy", 50, equi[0], longer[0]),
        ("Lovász", 50 + gain, equi[1], longer[1]),
    ):
        rows |= {
            loss: first,
            f"{loss} + equibatch": first + second,
            f"{loss} + equibatch, longer": first + second + third,
        }
    return {name: {"dataset": value, "multi-scale": value} for name, value in rows.items()}


def test_table_2_verdict_follows_the_numbers():
    assert scenes.TABLE.verdict(table_2(10, (1, 0), (-1, 1))).direction == "same"
    assert scenes.TABLE.verdict(table_2(10, (1, 0), (3, 1))).direction == "partly"
    assert "still far from its end" in scenes.TABLE.verdict(table_2(10, (1, 0), (3, 1))).sentence
    assert (
        "still far from its end" not in scenes.TABLE.verdict(table_2(10, (1, 0), (-1, 1))).sentence
    )
    assert scenes.TABLE.verdict(table_2(-10, (0, 1), (3, 1))).direction == "other"


def test_figure_6_verdict_follows_the_numbers():
    test = {
        "Lovász": {"dataset": 60, "image": 70},
        "Lovász per image": {"dataset": 50, "image": 75},
    }
    assert (
        scenes.CURVES.verdict(
            {"test": test, "correlation": {"batch": 0.99, "image": 0.2}}
        ).direction
        == "same"
    )
    turned = {"Lovász": test["Lovász per image"], "Lovász per image": test["Lovász"]}
    assert (
        scenes.CURVES.verdict(
            {"test": turned, "correlation": {"batch": 0.99, "image": 0.2}}
        ).direction
        == "partly"
    )
    assert (
        scenes.CURVES.verdict(
            {"test": turned, "correlation": {"batch": 0.1, "image": 0.2}}
        ).direction
        == "other"
    )


def test_every_digit_has_one_category():
    digits = [digit for group in list(enet_pieces.CATEGORIES.values())[1:] for digit in group]
    assert sorted(digits) == list(range(10))
    table = enet_pieces.category_of_class()
    names = list(enet_pieces.CATEGORIES)
    assert [names[table[label]] for label in (0, 1, 2, 9, 6)] == [
        "background",
        "loops",
        "straight",
        "loops",
        "curves",
    ]


def test_enet_verdict_follows_the_numbers():
    numbers = {
        "base": {"class": 50, "category": 80},
        "weighted cross-entropy, batch 10": {"class": 50, "category": 80},
        "Lovász, batch 2": {"class": 51, "category": 80},
        "Lovász, batch 10": {"class": 55, "category": 82},
    }
    assert enet.ENET.verdict(numbers).direction == "same"
    assert (
        enet.ENET.verdict(numbers | {"Lovász, batch 2": {"class": 60, "category": 80}}).direction
        == "partly"
    )
    assert (
        enet.ENET.verdict(numbers | {"Lovász, batch 10": {"class": 40, "category": 70}}).direction
        == "other"
    )


def prox_cost(u, x, nu, step):
    u = torch.as_tensor(u)
    return prox_pieces.surface(u, nu) + float(((u - x) ** 2).sum()) / (2 * step)


@pytest.mark.parametrize("nu", prox.SLOPES)
def test_prox_of_the_surface_is_the_minimiser(nu):
    for point in ([0.9, 1.0], [0.05, 0.02], [-0.3, 0.5], [0.5, -0.2], [-1.0, -1.0], [0.3, 0.06]):
        x, step = torch.tensor(point, dtype=torch.float64), 0.3
        precise = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
        solver = minimize(
            prox_cost, x.numpy(), args=(x, nu, step), method="Nelder-Mead", options=precise
        )
        assert prox_cost(prox_pieces.prox_of_surface(x, nu, step), x, nu, step) <= solver.fun + 1e-9


def test_momentum_adds_up_the_gradients():
    path = prox_pieces.descend(method="momentum", nu=2.0, step=0.1, iterations=2, start=[5.0, 0.0])
    assert path[1][:2] == pytest.approx([5 - 0.1 * 2, 0])
    assert path[2][:2] == pytest.approx([4.8 - 0.1 * (0.9 * 2 + 2), 0])
    assert path[2][2] == pytest.approx(2 * path[2][0])


def test_surface_verdict_follows_the_numbers():
    value = {"SGD": [0.4, 0.4], "momentum": [0.2, 0.2], "prox": [0.3, 0.3]}
    crossings = {"SGD": [3, 1], "momentum": [2, 1], "prox": [0, 0]}
    assert prox.SURFACE.verdict({"value": value, "crossings": crossings}).direction == "same"
    assert (
        prox.SURFACE.verdict(
            {"value": value | {"prox": [0.5, 0.3]}, "crossings": crossings}
        ).direction
        == "partly"
    )
    turned = crossings | {"prox": [4, 4]}
    assert (
        prox.SURFACE.verdict({"value": value | {"prox": [0.5, 0.3]}, "crossings": turned}).direction
        == "other"
    )


def test_last_layer_verdict_follows_the_numbers():
    def found(prox, end=0.9, lam=0.01):
        area = {"SGD": 1.0, "momentum": 0.9, "prox": prox, "prox + momentum": 0.8}
        return {
            name: {"start": 1.0, "end": end, "area": value, "lam": lam}
            for name, value in area.items()
        }

    def verdict(zero, trained):
        return prox.LAST_LAYER.verdict({"zero": zero, "cross-entropy": trained})

    assert verdict(found(0.9), found(0.9)).direction == "same"
    assert (
        verdict(found(1.1), found(0.9)).direction
        == verdict(found(0.95), found(0.95)).direction
        == "partly"
    )
    assert verdict(found(1.1), found(1.1)).direction == "other"
    assert verdict(found(1.1), found(0.997)).direction == "other"  # a tie with SGD is not better
    assert "close to that of SGD" in verdict(found(0.9), found(0.9, lam=0.1)).sentence
    assert "how little they move" in verdict(found(1.1, end=1.01), found(0.9)).sentence
    assert "how little they move" not in verdict(found(1.1), found(0.9)).sentence


def test_head_starts_at_the_hinge_of_margin_one_and_learns():
    """All scores 0, all errors 1: the extension is the Jaccard loss of everything wrong, 1."""
    mask = torch.zeros(16, 4, 4, dtype=torch.int64)
    mask[:, 1:3, 1:3] = 1
    part = Part(
        torch.stack([mask.float(), torch.randn(16, 4, 4)], 1),
        mask.repeat_interleave(2, 1).repeat_interleave(2, 2),
    )
    for method in prox_pieces.METHODS:
        head = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 1), torch.nn.PixelShuffle(2), torch.nn.Flatten(1, 2)
        )
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
        curve = prox_pieces.fit_head(head, part, part, 20, 20, 0, method, 1.0, 1.0)
        assert curve[0] == [0, pytest.approx(1.0)]
        assert curve[1][1] < 0.9


def test_every_setting_of_the_last_layer_has_the_same_start():
    setting = {"seed": 0, "sizes": [16, 8, 8], "base_iterations": 2, "iterations": 2, "every": 2}
    trials = [["SGD", 1.0, 1.0], ["momentum", 2.0, 1.0]]
    first, second = prox_pieces.last_layer(**setting, start="zero", settings=trials)
    assert first[0] == second[0] == [0, pytest.approx(1.0)]
    first, second = prox_pieces.last_layer(**setting, start="cross-entropy", settings=trials)
    assert first[0] == second[0] != [0, pytest.approx(1.0)]
    assert first[1] != second[1]


def test_every_slice_is_tested_in_one_fold():
    part = Part(torch.arange(31.0).view(31, 1, 1, 1), torch.zeros(31, 1, 1))
    tested = []
    for fold in range(brain_pieces.FOLDS):
        split = brain_pieces.fold_of(part, fold, block=2)
        parts = [
            one.inputs.flatten().tolist() for one in (split.train, split.validation, split.test)
        ]
        assert sorted(sum(parts, [])) == list(range(31))
        assert all(parts)
        tested += parts[2]
    assert sorted(tested) == list(range(31))


def test_overlaps_are_jaccard_and_dice():
    target = torch.zeros(1, 4, 9, dtype=torch.int64)
    target[0] = torch.arange(9)
    prediction = target.clone()
    prediction[0, :2, 1] = 0  # half of the left thalamus is missed
    found = brain_pieces.overlaps(prediction, target)
    assert found["Jaccard"]["Thalamus"] == pytest.approx(100 * (1 / 2 + 1) / 2)
    assert found["Dice"]["Thalamus"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert found["Jaccard"]["Putamen"] == found["Dice"]["Pallidum"] == 100


def test_brain_verdict_follows_the_numbers():
    def folds(*first):
        return {
            kind: [
                dict(zip(brain_pieces.NAMES, [value + more for value in first])) for more in (0, 1)
            ]
            for kind in brain.INDICES
        }

    low, high, mixed = folds(60, 60, 60, 60), folds(61, 61, 61, 61), folds(70, 70, 70, 50)
    assert brain.BRAIN.verdict({"cross-entropy": low, "Lovász": high}).direction == "same"
    assert brain.BRAIN.verdict({"cross-entropy": high, "Lovász": low}).direction == "other"
    partly = brain.BRAIN.verdict({"cross-entropy": low, "Lovász": mixed})
    assert partly.direction == "partly"
    assert "+5.0 [+5.0, +5.0] points of Jaccard" in partly.sentence
    assert f"3 of 4 structures, not in {brain_pieces.NAMES[-1]}." in partly.sentence


def write_volume(path, volume):
    """A gzipped NIfTI-1 file of bytes."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *volume.shape, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 2, 8)
    struct.pack_into("<f", header, 108, 352.0)
    path.write_bytes(
        gzip.compress(bytes(header) + volume.permute(2, 1, 0).contiguous().numpy().tobytes())
    )


def test_brain_runs_on_a_small_volume_in_the_fetched_layout(tmp_path, monkeypatch):
    folder = tmp_path / "brain" / "usr" / "share" / "mricron" / "templates"
    folder.mkdir(parents=True)
    regions = torch.zeros(30, 34, 20, dtype=torch.uint8)
    regions[6:22, 8:24, 4:16] = torch.randint(0, 9, (16, 16, 12), dtype=torch.uint8)
    write_volume(folder / "aal.nii.gz", regions)
    write_volume(folder / "ch2.nii.gz", regions * 20)
    (folder / "aal.nii.txt").write_text(
        "\n".join(f"{n} {name} 0" for n, name in enumerate(brain_pieces.STRUCTURES, 1))
    )
    monkeypatch.setenv("EVALGRAD_DATA", str(tmp_path))
    outcome = brain.BRAIN.run("tiny", Runs(Store(tmp_path / "store")))
    assert len(outcome.tables[0].rows) == 4
    assert brain.BRAIN.verdict(outcome.numbers).sentence.endswith(".")


def test_fetched_data_that_is_missing_skips_with_the_repair(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALGRAD_DATA", str(tmp_path))
    for experiment, size in (
        (brain.BRAIN, "full"),
        (brain.BRAIN, "default"),
        (binary.MATRIX, "full"),
        (binary.PRIOR_WORK, "full"),
    ):
        with pytest.raises((SkippedError, NotFetchedError), match="make data"):
            experiment.run(size, Runs(Store(tmp_path)))
