"""The report says what the run files say: every number is recomputed from the records."""

import json
import re
import statistics

import pytest
from report_reading import Tree, expected, in_terminal, numbers
from synthetic_runs import TASKS, comparison

from evalgrad_lab import report
from evalgrad_lab.report import words
from evalgrad_lab.report.panels import panels
from evalgrad_lab.report.sections import learning_curve


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A comparison that went through a file, as that of a store does."""
    path = tmp_path_factory.mktemp("runs") / "comparison.json"
    path.write_text(json.dumps(comparison()))
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def tree(runs):
    return Tree(report.render(runs))


def test_every_cell_of_the_page_is_recomputed_from_the_runs(runs, tree):
    table = expected(runs)
    cells = {
        (a["data-task"], a["data-budget"], a["data-loss"]): (a, text)
        for a, text in tree.having("data-task", "data-mean")
    }
    assert cells.keys() == table.keys()
    for key, (mean, spread, gap) in table.items():
        attributes, text = cells[key]
        assert float(attributes["data-mean"]) == pytest.approx(mean)
        assert float(attributes["data-spread"]) == pytest.approx(spread)
        assert text.startswith(f"{100 * mean:.1f} ± {100 * spread:.1f}")
        if gap is None:
            assert text.endswith("reference")
        else:
            found = [float(attributes[f"data-{name}"]) for name in ("difference", "low", "high")]
            assert found == pytest.approx(gap)
            assert attributes["data-verdict"] == (
                "win" if gap[1] > 0 else "loss" if gap[2] < 0 else "tie"
            )
            assert text.endswith(attributes["data-verdict"])
            assert [float(number) for number in numbers(text)[2:]] == pytest.approx(
                [100 * v for v in gap], abs=0.0501
            )


def test_every_row_of_the_terminal_is_recomputed_from_the_runs(runs):
    found = {}
    task = budget = None
    names = {loss for _, _, _, _, _, losses in TASKS for loss, _, _ in losses}
    for line in in_terminal(runs).split("Training on the metric")[0].splitlines():
        if title := re.match(r"(\S.*?)( \(designed data\))?: test ", line):
            task = title.group(1)
        elif line.strip() in {budget for t in TASKS for budget in t[4]}:
            budget = line.strip()
        elif (loss := line[: line.find("  ", 2)].strip()) in names:
            found[task, budget, loss] = line
    table = expected(runs)
    assert found.keys() == table.keys()
    for key, (mean, spread, gap) in table.items():
        values = [100 * v for v in (mean, spread, *(gap or ()))]
        text = found[key][found[key].find("  ", 2) :]
        assert [float(number) for number in numbers(text)] == pytest.approx(values, abs=0.0501)
        assert text.split()[-1] == (
            "reference" if gap is None else "win" if gap[1] > 0 else "loss" if gap[2] < 0 else "tie"
        )


def test_the_other_numbers_of_the_page_are_means_over_the_runs(runs, tree):
    def mean(task, loss, value, **fixed):
        chosen = [
            r
            for r in runs["records"]
            if (r["task"], r["loss"]) == (task, loss) and fixed.items() <= r.items()
        ]
        return pytest.approx(statistics.mean(map(value, chosen)))

    first_budget = {task[0]: task[4][0] for task in TASKS}
    metrics = tree.having("data-metric-task")
    assert {a["data-metric-task"] for a, _ in metrics} == {task[0] for task in TASKS if task[2]}
    for a, text in metrics:
        task, name = a["data-metric-task"], a["data-metric"]
        value = mean(
            task,
            a["data-metric-loss"],
            lambda r, name=name: r["test"][name],
            budget=first_budget[task],
        )
        assert float(a["data-value"]) == value
        assert text == words.points(float(a["data-value"]))
    costs = tree.having("data-cost-task")
    assert len(costs) == sum(len(task[5]) for task in TASKS)
    for a, _ in costs:
        task, loss = a["data-cost-task"], a["data-cost-loss"]
        assert float(a["data-step"]) == mean(task, loss, lambda r: r["milliseconds_per_step"])
        assert float(a["data-loss-milliseconds"]) == mean(
            task, loss, lambda r: r["loss_milliseconds"]
        )
        assert float(a["data-megabytes"]) == mean(task, loss, lambda r: r["peak_megabytes"])


def test_class_bars_are_means_over_the_runs_and_as_long_as_their_value(runs, tree):
    bars = [a for a, _ in tree.having("data-class") if a["data-loss"] == "lovasz_softmax"]
    chosen = [
        r
        for r in runs["records"]
        if (r["loss"], r["budget"]) == ("lovasz_softmax", "500 iterations")
    ]
    means = [statistics.mean(column) for column in zip(*(r["per_class"]["values"] for r in chosen))]
    assert [float(a["data-value"]) for a in bars] == pytest.approx(means)
    assert [a["data-class"] for a in bars] == chosen[0]["per_class"]["labels"]
    scale = float(bars[0]["width"]) / means[0]
    assert [float(a["width"]) for a in bars] == pytest.approx(
        [scale * value for value in means], abs=0.2
    )


def test_a_curve_is_the_mean_over_seeds_with_the_band_between_the_extremes(runs):
    row = panels(runs["records"])[0].rows[0]
    line = learning_curve(row, "iteration", "baseline0")
    columns = list(zip(*([point["metric"] for point in run["curve"]] for run in row.runs)))
    assert line.x == [point["iteration"] for point in row.runs[0]["curve"]]
    assert line.mean == pytest.approx([statistics.mean(column) for column in columns])
    assert (line.low, line.high) == (
        pytest.approx([*map(min, columns)]),
        pytest.approx([*map(max, columns)]),
    )


def test_seeds_that_stop_at_other_moments_are_averaged_at_equal_shares_of_training():
    """In equal time one seed looks at 50 and 100, another at 75 and 150; a seed that diverged has
    no curve.
    """
    records = comparison(seeds=3, tasks=TASKS[3:4])["records"]
    row = panels(records)[0].rows[0]
    for run, (last, seconds) in zip(row.runs, [(100, 2.0), (150, 4.0)]):
        run["curve"] = [
            {
                "iteration": last * k // 2,
                "seconds": seconds * k / 2,
                "loss": 1.0,
                "metric": 0.1 * k * last / 100,
            }
            for k in (1, 2)
        ]
    row.runs[2]["curve"] = []
    line = learning_curve(row, "seconds", "ours0")
    assert line.x == pytest.approx([1.5, 3.0])
    assert learning_curve(row, "iteration", "ours0").x == pytest.approx([62.5, 125])
    assert line.mean == pytest.approx([0.125, 0.25])
    assert (line.low, line.high) == (pytest.approx([0.1, 0.2]), pytest.approx([0.15, 0.3]))
