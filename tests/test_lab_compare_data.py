"""`evalgrad compare --data` on the user's own data: every form for every task, its numbers computed
again from what is stored, interrupted, on changed data, within a time; and `train --tune`.
"""

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, top_k_accuracy_score
from training_data import table, write_colours, write_segmentation, write_table

from evalgrad_lab import (
    CompareOptions,
    EvaluateOptions,
    PredictOptions,
    TrainOptions,
    compare,
    evaluate,
    predict,
    train,
)
from evalgrad_lab.cli import main
from evalgrad_lab.comparison import budget, candidates, own
from evalgrad_lab.errors import UserError
from evalgrad_lab.report.panels import Difference, Panel, Row
from evalgrad_lab.tune import Tuned, product

QUICK = {"trials": 2, "search_seeds": 1, "seeds": 2, "epochs": 2, "jobs": 1}
SMALL_UNET = {"model_options": {"width": 4}, "batch_size": 4}
SMALL_DENSENET = {"model_options": {"depth": 7, "growth": 4}, "batch_size": 4}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def masks_of(folder, names):
    return np.stack([np.array(Image.open(folder / f"{name}.png")) for name in names])


def iou(predicted, true, label):
    both, either = (
        ((predicted == label) & (true == label)),
        ((predicted == label) | (true == label)),
    )
    return both.sum() / either.sum() if either.any() else math.nan


class Segmentation:
    """Folders: mean IoU of three classes over all test pixels."""

    options: ClassVar = {"task": "segmentation", "metric": "miou", **SMALL_UNET}

    def write(self, path):
        return write_segmentation(path / "data", count=15)

    def measured(self, data, out, names):
        predicted, true = masks_of(out, names), masks_of(data / "masks", names)
        return np.nanmean([iou(predicted, true, label) for label in range(3)])


class BinarySegmentation:
    """`.npz`: the IoU of the foreground of each image."""

    options: ClassVar = {"task": "segmentation", "metric": "image-iou", **SMALL_UNET}

    def write(self, path):
        write_segmentation(path / "raw", count=15)
        images, masks = (
            masks_of(path / "raw" / n, [f"{i:02}" for i in range(15)]) for n in ("images", "masks")
        )
        np.savez(path / "data.npz", inputs=images, target=masks.astype(int) > 0)
        return path / "data.npz"

    def measured(self, data, out, names):
        predicted, true = masks_of(out, names), np.load(data)["target"][[int(n) for n in names]]
        return np.mean([iou(p, t, 1) for p, t in zip(predicted, true)])


class Colours:
    """Folders of classes: top-2 accuracy."""

    options: ClassVar = {"task": "classification", "metric": "top2", **SMALL_DENSENET}
    classes = ("blue", "green", "red")

    def write(self, path):
        return write_colours(path / "data", count=8)

    def rows(self, out):
        lines = (out / "predictions.csv").read_text().splitlines()
        return [dict(zip(lines[0].split(","), line.split(","))) for line in lines[1:]]

    def measured(self, data, out, names):
        """`predict` looks at one folder of images: all are beside each other in the test."""
        said = {row["name"]: row for row in self.rows(out)}
        rows = [said[name.replace("/", "-").removesuffix(".png")] for name in names]
        guesses = [{row["prediction_1"], row["prediction_2"]} for row in rows]
        return np.mean([name.split("/")[0] in found for name, found in zip(names, guesses)])


class Table:
    """CSV with lists; F1 at the threshold."""

    options: ClassVar = {"task": "ranking", "metric": "f1", "group": "query", "batch_size": 2}

    def write(self, path):
        return write_table(path / "data.csv")

    rows = Colours.rows

    def measured(self, data, out, names):
        rows, target = self.rows(out), table()[1]
        places = [int(name) for name in names]
        return f1_score(target[places], [int(rows[i]["prediction"]) for i in places])


class Lists(Table):
    """`.npz` with lists: the mean AP of them."""

    options: ClassVar = {"task": "ranking", "metric": "ap", "batch_size": 2}

    def write(self, path):
        x, target, group = table()
        np.savez(path / "data.npz", inputs=x, target=target, group=group)
        return path / "data.npz"

    def measured(self, data, out, names):
        arrays, scores = np.load(data), np.array([float(row["score"]) for row in self.rows(out)])
        places = np.array([int(name) for name in names])
        lists = arrays["group"][places]
        chosen = [places[lists == number] for number in np.unique(lists)]
        return np.mean([average_precision_score(arrays["target"][c], scores[c]) for c in chosen])


class Words(Table):
    """CSV of classes in words."""

    options: ClassVar = {"task": "classification", "metric": "top1", "target": "answer"}

    def write(self, path):
        return write_table(path / "data.csv", target_name="answer", words=True)

    def measured(self, data, out, names):
        rows, target = self.rows(out), table()[1]
        right = [rows[int(n)]["prediction"] == ("no", "yes")[target[int(n)]] for n in names]
        return np.mean(right)


class Arrays(Table):
    """`.npz` of classes: top-2 accuracy by scikit-learn."""

    options: ClassVar = {"task": "classification", "metric": "top2"}

    def write(self, path):
        x, _, group = table()
        np.savez(path / "data.npz", inputs=x, target=group)
        return path / "data.npz"

    def measured(self, data, out, names):
        places = [int(name) for name in names]
        rows, target = self.rows(out), np.load(data)["target"][places]
        chances = [[float(rows[i][f"probability_{c}"]) for c in range(6)] for i in places]
        return top_k_accuracy_score(target, chances, k=2, labels=range(6))


class Labels(Table):
    """CSV of two labels: the mean of their APs."""

    options: ClassVar = {"task": "multilabel", "metric": "ap", "target": "target,sign"}

    def write(self, path):
        x, target, _ = table()
        rows = [[*r, t, int(r[2] > 0)] for r, t in zip(x.tolist(), target.tolist())]
        lines = ["a,b,c,target,sign", *(",".join(map(repr, row)) for row in rows)]
        (path / "data.csv").write_text("\n".join(lines) + "\n")
        return path / "data.csv"

    def measured(self, data, out, names):
        (x, target, _), rows = table(), self.rows(out)
        places = [int(name) for name in names]
        labels = {"target": target, "sign": x[:, 2] > 0}
        scores = {n: [float(rows[i][f"score_{n}"]) for i in places] for n in labels}
        return np.mean([average_precision_score(labels[n][places], scores[n]) for n in labels])


CASES = [Segmentation, BinarySegmentation, Colours, Arrays, Words, Table, Lists, Labels]


def stored_runs(out):
    """What the files of the runs hold, but for the timing."""
    files = [json.loads(path.read_text()) for path in (out / "store").glob("*.json")]
    trials = [f for f in files if f["description"]["function"].endswith("own_trial")]
    return [(f["description"]["settings"], f["result"]["result"]) for f in trials]


def flat_images(data, path):
    """All images of the folders of classes in one folder, as `predict` reads them."""
    path.mkdir()
    for file in data.glob("*/*.png"):
        (path / f"{file.parent.name}-{file.name}").write_bytes(file.read_bytes())
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_form_of_data_is_compared_and_its_numbers_are_those_of_the_runs(
    case, tmp_path, capsys
):
    data, out = case().write(tmp_path), tmp_path / "out"
    result = compare(CompareOptions(data=data, out=out, **QUICK, **case.options))
    runs = stored_runs(out)
    panels = {panel.budget: panel for panel in result.panels}
    assert list(panels)[1] == "equal time"
    count = int(result.panels[0].budget.split()[0])
    losses = {row.loss for row in result.panels[0].rows}
    assert len(losses) == 4
    _check_search(runs, result, losses)
    means = {}
    for loss in losses:
        chosen = [
            r["test"][r["metric"]]
            for s, r in sorted(runs, key=lambda pair: pair[0]["seed"])
            if (r["loss"], r["iterations"]) == (loss, count)
            and s["seed"] < 2
            and r["hyper"] == result.comparison["search"][loss]["chosen"]
        ]
        assert len(chosen) == 2
        means[loss] = chosen
    first = result.panels[0]
    for row in first.rows:
        values = means[row.loss]
        assert row.mean == pytest.approx(statistics.fmean(values))
        assert row.spread == pytest.approx(statistics.stdev(values))
        if row.loss != first.reference.loss:
            pairs = [a - b for a, b in zip(values, means[first.reference.loss])]
            half = stats.t.ppf(0.975, 1) * statistics.stdev(pairs) / math.sqrt(2)
            middle = statistics.fmean(pairs)
            assert row.difference.interval == pytest.approx((middle - half, middle + half))
        assert f"{100 * row.mean:.1f}" in (out / "report.html").read_text()
    _check_model(case(), data, result, means, tmp_path)


def _check_search(runs, result, losses):
    """Every loss was tried at as many points, and the best on validation was chosen."""
    for loss in losses:
        tried = {
            json.dumps(r["hyper"], sort_keys=True): r["validation"][r["metric"]]
            for s, r in runs
            if r["loss"] == loss and s["seed"] == own.FIRST_SEED
        }
        assert len(tried) == QUICK["trials"]
        chosen = json.dumps(result.comparison["search"][loss]["chosen"], sort_keys=True)
        assert tried[chosen] == max(tried.values())


def _check_model(case, data, result, means, tmp_path):
    """The model that is left is the one that was compared, measured by other code."""
    left = result.winner or result.panels[0].reference.loss
    assert result.model == tmp_path / "out" / "model"
    found = evaluate(EvaluateOptions(run=result.model))
    assert found.value == means[left][0]
    if case.options["metric"] in ("f1", "image-iou"):
        records = result.comparison["records"]
        record = next(r for r in records if (r["loss"], r["seed"]) == (left, 0))
        assert record["decision"]["rule"] == found.decision.rule
        at_0 = evaluate(EvaluateOptions(run=result.model, threshold=0.0)).value
        assert record["test"][f"{record['metric']} at 0"] == at_0
    images = (
        flat_images(data, tmp_path / "flat")
        if case.options["metric"] == "top2" and data.is_dir()
        else data
    )
    predict(
        PredictOptions(run=result.model, data=images, out=tmp_path / "said", probabilities=True)
    )
    parts = json.loads((result.model / "parts.json").read_text())
    names = [name for name, _ in parts["test"]]
    assert found.value == pytest.approx(case.measured(data, tmp_path / "said", names), abs=1e-6)


def table_arguments(tmp_path, out, *more):
    options = ["--task", "ranking", "--metric", "f1", "--group", "query", "--batch-size", "2"]
    data = ["--data", str(tmp_path / "data.csv"), "--out", str(tmp_path / out), "--jobs", "2"]
    counts = ["--trials", "3", "--search-seeds", "1", "--seeds", "2", "--epochs", "6"]
    return ["compare", *options, *data, *counts, *more]


def lasting(record):
    """What does not depend on the clock."""
    timed = ("seconds", "milliseconds_per_step", "loss_milliseconds", "peak_megabytes", "curve")
    return {name: value for name, value in record.items() if name not in timed}


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)]
)
def test_a_killed_comparison_goes_on_to_the_same_result(tmp_path, ending, code):
    write_table(tmp_path / "data.csv")
    start = "import sys; from evalgrad_lab.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, *table_arguments(tmp_path, "killed")]
    said, one = tmp_path / "said.txt", {**os.environ, "OMP_NUM_THREADS": "1"}
    with said.open("w") as file:
        process = subprocess.Popen(command, env=one, stderr=file)
    store = tmp_path / "killed" / "store"
    while len(list(store.glob("*.json"))) < 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(ending)
    assert process.wait() == code
    if ending == signal.SIGTERM:  # as a job scheduler ends a job
        assert said.read_text().endswith("finished work is kept, and the same command resumes.\n")
        assert "Traceback" not in said.read_text()
    before = {path: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert len(before) < 12  # in the search
    assert not (tmp_path / "killed" / "comparison.json").exists()
    for out in ("killed", "whole"):
        assert main([*table_arguments(tmp_path, out), "--jobs", "1"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    killed, whole = (
        json.loads((tmp_path / out / "comparison.json").read_text()) for out in ("killed", "whole")
    )
    assert killed["search"] == whole["search"]
    # how many iterations take equal time is measured, and so not the same every time
    pairs = [
        [lasting(r) for r in one["records"] if r["budget"] != "equal time"]
        for one in (killed, whole)
    ]
    assert len(pairs[0]) == 8
    assert pairs[0] == pairs[1]


def test_changed_data_are_never_answered_by_an_old_run(tmp_path, capsys):
    data = write_table(tmp_path / "data.csv")
    arguments = table_arguments(tmp_path, "out", "--losses", "bce", "f_beta", "--jobs", "1")
    arguments[arguments.index("6")] = "1"
    assert main(arguments) == 0
    first = set((tmp_path / "out" / "store").glob("*.json"))
    lines = data.read_text().splitlines()
    data.write_text("\n".join([lines[0], *lines[2:]]) + "\n")  # one row less, the same path
    assert main(arguments) == 0
    second = set((tmp_path / "out" / "store").glob("*.json")) - first
    digests = [
        json.loads(next(iter(s)).read_text())["description"]["settings"]["data"]
        for s in (first, second)
    ]
    assert digests[0] != digests[1]
    assert len(second) >= 6 + 4  # all of the search, and of the results
    assert "reused" not in capsys.readouterr().err


def test_the_commands_that_are_printed_make_comparison_and_model_again(tmp_path, capsys):
    write_table(tmp_path / "data.csv")
    arguments = table_arguments(tmp_path, "out", "--losses", "bce", "f_beta", "--jobs", "1")
    assert main(arguments) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(content["conclusion"].split()) in said
    words = content["train_command"].split()
    assert words[:3] == ["OMP_NUM_THREADS=1", "evalgrad", "train"]
    words[words.index("--out") + 1] = str(tmp_path / "again")
    assert main(words[2:]) == 0
    first, again = (
        json.loads((tmp_path / run / "result.json").read_text()) for run in ("out/model", "again")
    )
    assert first == again
    weights = [(tmp_path / run / "best.safetensors").read_bytes() for run in ("out/model", "again")]
    assert weights[0] == weights[1]
    assert content["command"].startswith("evalgrad compare --")
    assert content["train_command"] in (tmp_path / "out" / "report.html").read_text()


def test_tune_tries_points_and_trains_with_the_best_on_validation(tmp_path):
    data = write_table(tmp_path / "data.csv")
    options = TrainOptions(
        task="ranking",
        metric="ap",
        data=data,
        group="query",
        out=tmp_path / "run",
        loss="direct_average_precision",
        tune=4,
        jobs=1,
        epochs=2,
        weight_decay=0.01,
        accelerator="cpu",
    )
    result = train(options)
    files = (tmp_path / "run" / "search").glob("*.json")
    tried = [json.loads(path.read_text())["result"]["result"] for path in files]
    assert len(tried) == 4
    best = max(tried, key=lambda record: record["validation"]["AP"])
    assert best["validation"]["AP"] == max(r["validation"]["AP"] for r in tried)
    found = next(r for r in tried if r["hyper"] == result.tuned)
    assert found["validation"] == best["validation"]
    assert set(result.tuned) == {"learning_rate", "epsilon"}  # the weight decay was given
    assert train(options) == result
    with_point = candidates.with_point(options, result.tuned)
    by_hand = TrainOptions(**{**vars(with_point), "tune": 0, "out": tmp_path / "by hand"})
    assert train(by_hand).test == result.test


def test_points_begin_with_the_default_and_go_through_the_learning_rates():
    axes = {"learning_rate": [3, 1, 9], "epsilon": (1.0, 0.1), "weight_decay": (0.0, 0.1)}
    found = candidates.points(axes, 12)
    assert found[0] == {"learning_rate": 3, "epsilon": 1.0, "weight_decay": 0.0}
    assert [point["learning_rate"] for point in found[:6]] == [3, 1, 9, 3, 1, 9]
    assert sorted(map(repr, found)) == sorted(repr(dict(point)) for point in product(axes))
    assert candidates.points(axes, 5) == found[:5]


COSTS = budget.Costs(step=0.01, look=0.1, ready=1.0, per_epoch=10)
PLAN = budget.Plan(trials=8, search_seeds=2, seeds=5, iterations=500)


def test_the_estimate_counts_every_run():
    run = 1.0 + 500 * 0.01 + 52 * 0.1
    assert COSTS.run(500) == pytest.approx(run)
    assert budget.estimated(PLAN, 4, COSTS, 2) == pytest.approx(run * (4 * (16 + 10) / 2 + 1))


@pytest.mark.parametrize("share", [1.2, 0.8, 0.5, 0.3, 0.1, 0.02, 1e-6])
def test_a_plan_fits_into_the_time_or_is_the_smallest(share):
    seconds = share * budget.estimated(PLAN, 4, COSTS, 2) / budget.MARGIN
    plan = budget.fitted(PLAN, 4, COSTS, 2, seconds)
    fits = budget.estimated(plan, 4, COSTS, 2) <= budget.MARGIN * seconds
    assert fits or plan == budget.Plan(2, 1, 2, 10)
    if share > 1:
        assert plan == PLAN
    if plan.iterations < 500:  # seeds and trials go first, as the page says
        assert (plan.trials, plan.search_seeds, plan.seeds) <= (4, 1, 3)
    if plan.trials < 4:
        assert plan.iterations == 10


def test_the_seeds_that_are_left_fit_into_the_rest():
    assert budget.seeds_left(PLAN, 1.0, 4, 2, 1000.0) == 5
    assert budget.seeds_left(PLAN, 1.0, 4, 2, 16.0) == 3  # 0.85 * 16 s - 1 s, 4 s a seed
    assert budget.seeds_left(PLAN, 1.0, 4, 2, 0.1) == 2


@pytest.mark.parametrize("text", ["30", "min", "0s", "3days", "an hour"])
def test_a_time_that_is_none_is_told(text, tmp_path, capsys):
    write_table(tmp_path / "data.csv")
    assert main([*table_arguments(tmp_path, "out"), "--budget", text]) == 2
    assert "--budget must be a time such as 90s, 30min or 2h" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_budget_makes_the_comparison_smaller_and_says_so(tmp_path, capsys):
    write_table(tmp_path / "data.csv")
    more = ["--budget", "5s", "--trials", "8", "--epochs", "2000", "--jobs", "1"]
    start = time.monotonic()
    assert main([*table_arguments(tmp_path, "out"), *more]) == 0
    assert time.monotonic() - start < 60  # 2000 epochs of all of it are hours
    plan = json.loads((tmp_path / "out" / "comparison.json").read_text())["plan"]
    assert plan["iterations"] < 2000
    assert plan["trials"] <= 4
    assert "--budget 5s:" in capsys.readouterr().err


def panel(at, *differences):
    """A panel in which bce is the reference and the first of the others speaks for ours."""
    rows = [Row("bce", "baseline", (), 0.5, 0.1, None)]
    rows += [
        Row(f"loss{i}", "ours", (), 0.5, 0.1, Difference((low + high) / 2, (low, high), 3))
        for i, (low, high) in enumerate(differences)
    ]
    return Panel("t", "t", False, "AP", at, tuple(rows), rows[0], rows[1] if rows[1:] else None)


@pytest.mark.parametrize(
    ("first", "second", "winner", "left"),
    [
        ((0.01, 0.03), (0.01, 0.02), "loss0", "loss0"),
        ((0.01, 0.03), (-0.01, 0.02), None, "bce"),
        ((-0.03, -0.01), (-0.02, -0.01), "bce", "bce"),
        ((-0.03, 0.01), (-0.02, 0.01), None, "bce"),
        ((-0.03, -0.01), (0.02, 0.03), None, "bce"),
    ],
)
def test_a_winner_wins_in_every_panel(first, second, winner, left):
    found = own.concluded([panel("9 iterations", first), panel("equal time", second)])
    assert found[:2] == (winner, left)
    assert ("The winner is" if winner else "There is no winner") in found[2]


def test_without_a_loss_of_the_metric_there_is_no_winner():
    assert own.concluded([panel("9 iterations")])[:2] == (None, "bce")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "d.csv"], "--data needs --task and --metric"),
        (["circles", "--data", "d.csv", "--task", "ranking", "--metric", "ap"], "TASKS is for"),
        (["circles", "--epochs", "3"], "--epochs is for comparisons on your data. Pass --data"),
        (["--budget", "3min"], "--budget is for comparisons on your data."),
    ],
)
def test_options_of_the_other_kind_of_comparison_are_told(arguments, message, tmp_path, capsys):
    assert main(["compare", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "99"], "--trials must be at most 15"),
        (["--test", "0"], "--test must be above 0: a comparison needs test data"),
        (["--losses", "f_beta"], "--losses must name a baseline too, such as bce"),
        (["--losses", "bce", "lovasz_softmax"], "--loss lovasz_softmax is for"),
        (["--losses", "bce", "dice"], "the loss must be one that `evalgrad losses` lists"),
    ],
)
def test_a_comparison_that_cannot_be_is_told_before_anything_is_written(
    more, message, tmp_path, capsys
):
    write_table(tmp_path / "data.csv")
    assert main([*table_arguments(tmp_path, "out"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_metric_that_the_baseline_trains_for_is_told(tmp_path, capsys):
    data = write_table(tmp_path / "data.csv", target_name="answer", words=True)
    options = ["--task", "classification", "--metric", "accuracy", "--target", "answer"]
    assert main(["compare", *options, "--data", str(data), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "follows --metric accuracy more closely than cross_entropy: there is nothing to" in said
    repair = said.partition("such as ")[2].strip().rstrip(".").split()  # which is right if followed
    quick = ["--trials", "1", "--search-seeds", "1", "--seeds", "2", "--epochs", "1", "--jobs", "1"]
    more = ["--data", str(data), "--out", str(tmp_path / "out"), *quick, *repair]
    assert main(["compare", *options, *more]) == 0


def test_a_changed_network_of_the_users_own_is_trained_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from evalgrad_lab import models

    (tmp_path / "own_net.py").write_text(
        "import torch\n\n\ndef net(inputs, outputs):\n    return torch.nn.Linear(inputs, outputs)\n"
    )
    first = models.source_digest("own_net:net")
    (tmp_path / "own_net.py").write_text("# changed\n" + (tmp_path / "own_net.py").read_text())
    assert first != models.source_digest("own_net:net")
    assert models.source_digest("unet") == ""


def test_the_recipe_is_tuned_as_its_best_start_is():
    """With planted scores: the point of the better baseline, which says whether it is weighted."""

    def found(value, **hyper):
        return Tuned({"hyper": hyper}, [], [[0.1], [value]])

    auto = candidates.entrant("auto", "bce", 0.01, 4)
    plain, weighted = found(0.6, learning_rate=0.1), found(0.7, positive_weight=3.0)
    chosen = own._of_start(auto, {"bce": plain, "weighted_bce": weighted})
    assert chosen.point["hyper"] == {"positive_weight": 3.0}
    chosen = own._of_start(auto, {"bce": plain})
    assert chosen.point["hyper"] == {"learning_rate": 0.1, "positive_weight": 1.0}


def test_the_recipe_needs_its_start_beside_it(tmp_path):
    options = {"task": "ranking", "metric": "ap", "data": write_table(tmp_path / "t.csv")}
    with pytest.raises(UserError, match="--losses must name bce too"):
        compare(CompareOptions(losses=["hinge", "auto"], out=tmp_path / "o", **options))
