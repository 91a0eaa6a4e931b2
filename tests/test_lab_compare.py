"""Runs, search and comparison on a task of three iterations: complete records, resuming, fairness,
equal time.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

import evalgrad as eg
from evalgrad_lab import cli, runs, tasks, trials
from evalgrad_lab.commands import search
from evalgrad_lab.comparison import built_in
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.points import circles, two_modes
from evalgrad_lab.decisions import thresholds
from evalgrad_lab.given import Given, class_weights
from evalgrad_lab.measures import Measure
from evalgrad_lab.report import panels
from evalgrad_lab.report.records import Record
from evalgrad_lab.store import Store
from evalgrad_lab.tasks.demo import DEMO
from evalgrad_lab.tasks.segmentation import bias_found
from evalgrad_lab.tasks.task import EQUAL_TIME

HYPER = {"learning_rate": 0.1}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A task of three iterations among the tasks, an empty file of hyper-parameters, and a list of
    the runs that were trained.
    """
    task = dataclasses.replace(
        tasks.find("two-mode-f1"),
        name="tiny",
        data=partial(two_modes, sizes=Sizes(60, 60, 60)),
        iterations=(3,),
        seeds=2,
    )
    monkeypatch.setitem(tasks.TASKS, "tiny", task)
    trained, real = [], runs.timed
    monkeypatch.setattr(runs, "timed", lambda f, given: trained.append(given) or real(f, given))
    return trained


@pytest.fixture
def tuned(tiny, tmp_path):
    """As `tiny`, with hyper-parameters as a search would have left them."""
    losses = {one.name: {"hyper": next(one.candidates())} for one in tasks.find("tiny").methods}
    (tmp_path / "out").mkdir()
    found(tmp_path).write_text(json.dumps({"tiny": {"losses": losses}}))
    return tiny


def found(tmp_path):
    return tmp_path / "out" / "hyperparameters.json"


def command(tmp_path, name, *arguments):
    given = ["--hyperparameters", str(found(tmp_path))] if name == "compare" else []
    return cli.main([name, *arguments, *given, "--jobs", "1", "--out", str(tmp_path / "out")])


def trial(loss, seed=0, iterations=3, **more):
    return trials.trial(
        task="tiny", loss=loss, hyper=HYPER, seed=seed, iterations=iterations, **more
    )


def comparison(tmp_path, folder="out"):
    return json.loads((tmp_path / folder / "comparison.json").read_text())


def test_a_record_is_complete(tiny):
    record = trial("bce")
    assert {*record, "budget", "recipe"} == {*Record.__annotations__}  # which --loss auto has
    assert [point["iteration"] for point in record["curve"]] == [1, 2, 3]
    assert (
        record["curve"][-1]["seconds"]
        == record["seconds"]
        == 3 * record["milliseconds_per_step"] / 1000
    )
    assert all(
        0 <= value <= 1 for part in ("test", "validation") for value in record[part].values()
    )
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("task", tasks.ALL, ids=lambda task: task.name)
def test_every_loss_of_every_task_takes_a_step_on_its_data(task):
    split = task.data(0)
    few = Part(split.train.inputs[:200], split.train.target[:200])
    for method in task.methods:
        training = trials.start(task, method, next(method.candidates()), few, 0, 3)
        before = [parameter.clone() for parameter in training.network.parameters()]
        assert torch.isfinite(training.take(next(iter(in_memory(few, None, 0)(0)))))
        after = training.network.parameters()
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert training.fabric.device.type == "cpu"


def test_the_same_run_gives_the_same_metrics(tiny):
    first, again, other = (trial("f_beta", seed) for seed in (0, 0, 1))
    assert (first["test"], first["validation"]) == (again["test"], again["validation"])
    assert first["test"] != other["test"]


def test_batches_are_passes_over_the_training_part_without_repetition():
    train = Part(torch.randn(250, 256), torch.zeros(250, 2, dtype=torch.int64))
    batches = in_memory(train, 100, seed=0)
    passes = [torch.cat([batch.index for batch in batches(epoch)]) for epoch in range(2)]
    assert all(len(seen.unique()) == 200 for seen in passes)
    assert not torch.equal(*passes)


def test_early_stopping_keeps_the_network_that_was_best_on_validation(monkeypatch):
    """The metric is the step count's distance to 2: the best look is the second of three."""
    base = tasks.find("two-mode-f1")
    looks = []

    def value(rows):
        looks.append(rows[:, 0].clone())
        return torch.tensor((0.1, 0.9, 0.5)[min(len(looks), 3) - 1])

    measure = Measure(lambda scores, target, _: torch.stack([scores, target], 1), value)
    task = dataclasses.replace(
        base,
        name="tiny",
        data=partial(two_modes, sizes=Sizes(60, 60, 60)),
        measures={"F1": measure},
        keep_best=True,
    )
    monkeypatch.setitem(tasks.TASKS, "tiny", task)
    trial("bce")
    # the network that is judged on validation in the end, before its test
    assert torch.equal(looks[3], looks[1])


def test_a_rerun_trains_nothing_and_changed_sources_train_anew(tuned, tmp_path, monkeypatch):
    arguments = ("compare", "tiny", "--at", "3 iterations", "--losses", "bce", "f_beta")
    assert command(tmp_path, *arguments) == 0
    assert len(tuned) == 2 * 2  # losses, seeds
    first = comparison(tmp_path)
    assert command(tmp_path, *arguments) == 0
    assert len(tuned) == 4
    assert comparison(tmp_path)["records"] == first["records"]
    assert command(tmp_path, *arguments, "--seeds", "3") == 0
    assert len(tuned) == 4 + 2
    monkeypatch.setattr(runs, "digest", lambda module: "other")
    assert command(tmp_path, *arguments) == 0
    assert len(tuned) == 6 + 4


def test_ctrl_c_keeps_what_is_finished(tuned, tmp_path, monkeypatch, capsys):
    real = runs.timed

    def interrupted(function, given):
        if len(tuned) == 3:
            raise KeyboardInterrupt
        return real(function, given)

    monkeypatch.setattr(runs, "timed", interrupted)
    assert command(tmp_path, "compare", "tiny", "--at", "3 iterations") == 130
    assert not (tmp_path / "out" / "comparison.json").exists()
    monkeypatch.setattr(runs, "timed", real)
    assert command(tmp_path, "compare", "tiny", "--at", "3 iterations") == 0
    assert len(tuned) == 5 * 2  # each run once


@pytest.mark.parametrize("step", [1.0, 0.9, 2.0])  # of f_beta; of the reference 1
def test_equal_time_trains_only_what_differs(tuned, tmp_path, monkeypatch, capsys, step):
    monkeypatch.setattr(trials, "interleaved", lambda *_: [[1.0], [step]])
    command(tmp_path, "compare", "tiny", "--losses", "bce", "f_beta", "--seeds", "2")
    runs = [(run["loss"], run["iterations"], run["seed"]) for run in tuned if "seed" in run]
    other = step == 2
    assert runs == [
        *[("bce", 3, 0), ("bce", 3, 1), ("f_beta", 3, 0), ("f_beta", 3, 1)],
        *[("f_beta", 1, 0), ("f_beta", 1, 1)][: 2 * other],
    ]
    assert sum("seed" not in run for run in tuned) == 1  # timed once for all seeds
    said = "bce" if other else "bce and f_beta"
    note = f"differ by less than 5 %: {said} (3 iterations and equal time)."
    assert note in " ".join(capsys.readouterr().out.split())
    assert note in (tmp_path / "out" / "report.html").read_text()
    shown = {(record["loss"], record["budget"]) for record in comparison(tmp_path)["records"]}
    assert shown == {
        (loss, budget) for loss in ("bce", "f_beta") for budget in ("3 iterations", EQUAL_TIME)
    }


@pytest.mark.parametrize(
    ("reference", "own", "expected"),
    [
        (0.02, 0.02, 500),
        (0.0205, 0.02, 500),
        (0.022, 0.02, 550),
        (0.02, 0.04, 250),
        (0.03, 0.02, 750),
        (1.0, 1e9, 1),
    ],
)
def test_equal_time_is_a_quotient_of_step_times(reference, own, expected):
    assert trials.equal_time_iterations(500, reference, own) == expected


def test_equal_time_counts_the_steps_of_the_reference(tiny, monkeypatch):
    # medians 2 and 4
    monkeypatch.setattr(trials, "interleaved", lambda *_: [[3.0, 1.0, 2.0], [4.0, 9.0, 4.0]])
    given = {"task": "tiny", "loss": "f_beta", "hyper": HYPER}
    assert trials.in_equal_time(**given, iterations=10) == 5


@pytest.mark.parametrize("task", tasks.ALL, ids=lambda task: task.name)
def test_every_loss_of_a_task_has_as_many_candidates_and_baselines_come_first(task):
    assert len({len(list(method.candidates())) for method in task.methods}) == 1
    roles = [method.role for method in task.methods]
    assert roles == sorted(roles)  # "baseline" before "ours"
    assert "baseline" in roles
    assert "ours" in roles
    assert all(0 <= measure(*_some_scores(task)) <= 1 for measure in task.measures.values())


def _some_scores(task):
    part = task.data(0).test
    with torch.no_grad():
        return task.model().eval()(part.inputs[:100]), part.target[:100]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["digits-100"], ["digits-100-p1", "digits-100-p0"]),
        # each once
        (["two-mode-f1", "two-mode"], ["two-mode-f1", "two-mode-ap", "two-mode-recall"]),
        (["digit-table"], ["digit-table"]),  # a task of its own before the start of another
    ],
)
def test_a_family_name_stands_for_its_tasks(names, expected):
    assert [task.name for task in tasks.called(names)] == expected


def test_both_commands_take_a_family(tiny, tmp_path, monkeypatch):
    for name in ("tiny-a", "tiny-b"):
        monkeypatch.setitem(tasks.TASKS, name, dataclasses.replace(tasks.find("tiny"), name=name))
    monkeypatch.delitem(tasks.TASKS, "tiny")
    assert command(tmp_path, "search", "tiny") == 0
    assert set(search.chosen(found(tmp_path))) == {"tiny-a", "tiny-b"}
    assert (
        command(
            tmp_path,
            "compare",
            "tiny",
            "--at",
            "3 iterations",
            "--losses",
            "bce",
            "--seeds",
            "1",
        )
        == 0
    )
    assert [record["task"] for record in comparison(tmp_path)["records"]] == ["tiny-a", "tiny-b"]


def test_the_search_tries_all_candidates_and_keeps_the_best_of_validation(tiny, tmp_path):
    assert command(tmp_path, "search", "tiny", "--seeds", "2") == 0
    entry = search.chosen(found(tmp_path))["tiny"]
    assert entry["command"] == "evalgrad search tiny --seeds 2"
    assert not set(entry["seeds"]) & set(range(100))  # none of those that `compare` uses
    store = Store(tmp_path / "out" / "store")
    for method in tasks.find("tiny").methods:
        best = entry["losses"][method.name]
        assert [one["hyper"] for one in best["candidates"]] == list(method.candidates())
        for one in best["candidates"]:
            given = {"task": "tiny", "loss": method.name, "iterations": 3, "hyper": one["hyper"]}
            described = [
                runs.describe(trials.trial, {**given, "seed": seed}) for seed in entry["seeds"]
            ]
            scores = [store.load(d)["result"]["validation"]["F1"] for d in described]
            assert one["validation"] == pytest.approx(sum(scores) / 2, abs=1e-5)
        assert best["validation"] == max(one["validation"] for one in best["candidates"])
        assert {"hyper": best["hyper"], "validation": best["validation"]} in best["candidates"]


def test_the_reports_numbers_are_those_of_the_run_files(tuned, tmp_path, capsys):
    command(tmp_path, "compare", "tiny", "--at", "3 iterations", "--losses", "bce", "f_beta")
    files = [
        json.loads(path.read_text())["result"]["result"]
        for path in (tmp_path / "out" / "store").glob("*.json")
    ]
    page = (tmp_path / "out" / "report.html").read_text()
    shown = capsys.readouterr().out
    hyper = search.chosen(found(tmp_path))["tiny"]["losses"]
    for loss in ("bce", "f_beta"):
        values = [
            f["test"]["F1"]
            for f in files
            if f["loss"] == loss and f["hyper"] == hyper[loss]["hyper"] and f["seed"] < 2
        ]
        assert len(values) == 2
        assert f"{50 * sum(values):.1f}" in page
        assert f"{50 * sum(values):.1f}" in shown
    panel = panels.panels(comparison(tmp_path)["records"])[0]
    assert [row.loss for row in panel.rows] == ["bce", "f_beta"]


def test_the_demo_shows_losses_that_exist_and_are_tuned():
    path = search.HYPERPARAMETERS
    for selection in DEMO:
        names = [method.name for method in selection.task.methods]
        for loss in selection.losses or names:
            assert loss in names
            built_in.hyperparameters(search.chosen(path), selection.task, loss, path)
        assert set(selection.budgets or ()) <= set(selection.task.budgets)


def test_the_committed_search_is_of_the_present_grids():
    content = search.HYPERPARAMETERS.read_text()
    assert search.written(json.loads(content)) == content
    for name, entry in json.loads(content).items():
        for method in tasks.find(name).methods:
            tried = [candidate["hyper"] for candidate in entry["losses"][method.name]["candidates"]]
            assert tried == list(method.candidates()), (name, method.name)


def test_ctrl_c_in_a_terminal_stops_the_workers_and_the_same_command_goes_on(tmp_path):
    arguments = [
        "compare",
        "circles",
        "--at",
        "200 iterations",
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    # A suite that was started in the background would hand down that Ctrl-C is ignored.
    listen = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = f"{listen}from evalgrad_lab import cli; sys.exit(cli.main({arguments}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not list((tmp_path / "store").glob("*.json")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and to the workers
    _, message = process.communicate(timeout=300)
    assert process.returncode == 130
    assert message.endswith(
        "evalgrad compare: interrupted; finished work is kept, and the same command resumes.\n"
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.json")}
    assert 0 < len(before) < 25
    few = [*arguments[:4], "--seeds", "1", "--losses", "bce", "--jobs", "1", "--out", str(tmp_path)]
    assert cli.main(few) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    example = comparison(tmp_path.parent, tmp_path.name)["records"][0]["examples"][0]
    assert len(example["image"]) == len(example["target"]) == len(example["prediction"]) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("circle",), "TASK must be one of the lab's tasks; got 'circle'. Did you mean circles"),
        (
            ("circles", "--losses", "dice"),
            "--losses must name losses of the tasks; got dice. They have balanced_bce, bce",
        ),
        (
            ("circles", "--at", "an hour"),
            '--at must be "N iterations" or "equal time"; got \'an hour\'',
        ),
        (("circles", "--at", "0 iterations"), "--at must be"),
        (("circles", "--seeds", "0"), "--seeds must be at least 1; got 0"),
        (("circles", "--jobs", "0"), "--jobs must be at least 1; got 0"),
        (
            ("tiny",),
            "must hold bce of tiny; it has no such entry. Run `evalgrad search tiny --out OUT`",
        ),
    ],
)
def test_what_the_user_can_repair_is_a_sentence(
    tiny, tmp_path, capsys, monkeypatch, arguments, message
):
    code = cli.main(["compare", "--jobs", "1", "--out", str(tmp_path / "out"), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_search_needs_a_seed(tiny, tmp_path, capsys):
    assert command(tmp_path, "search", "tiny", "--seeds", "0") == 2
    assert "--seeds must be at least 1; got 0" in capsys.readouterr().err


def test_the_bias_of_circles_is_measured_by_the_metric():
    data = circles(0).test
    for bias in (-1.0, 0.3):
        scores = data.inputs + bias
        cuts = [0.0, *thresholds(scores, 60)]
        options = {"num_classes": 2, "over": "image", "classes": [1]}
        each = [eg.metrics.jaccard_index(scores > cut, data.target, **options) for cut in cuts]
        found = bias_found(torch.stack([scores, data.target.to(scores)], 1))
        torch.testing.assert_close(found, 1 - (max(each) - each[0]))


def test_the_data_of_a_seed_are_made_once_for_all_losses(tiny, monkeypatch):
    made = []

    def counted(seed):
        made.append(seed)
        return two_modes(seed, sizes=Sizes(60, 60, 60))

    monkeypatch.setitem(tasks.TASKS, "tiny", dataclasses.replace(tasks.find("tiny"), data=counted))
    first = trial("bce")["test"]
    trial("f_beta")
    assert trial("bce")["test"] == first  # no run has changed them
    assert made == [0]
    trial("bce", seed=1)
    assert made == [0, 1]


def test_class_weights_by_frequency():
    target = torch.tensor([0, 0, 0, 0, 1])
    given = Given(Part(torch.zeros(5, 1), target), num_classes=2)
    assert class_weights(given, 0.0) == [1.0, 1.0]
    # 1/4 and 1/1 over their mean
    assert class_weights(given, 1.0) == pytest.approx([0.4, 1.6])
