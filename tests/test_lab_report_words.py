"""What the report says in words agrees with the intervals, whichever way the data point."""

import re
import statistics

import pytest
from report_reading import Tree, by_seed, expected, in_terminal
from synthetic_runs import TASKS, comparison

from evalgrad_lab import report
from evalgrad_lab.report import words
from evalgrad_lab.report.panels import panels


def verdict_of_every_panel(runs):
    table = expected(runs)
    result = {}
    for task, _, _, _, budgets, losses in TASKS:
        for budget in budgets:
            ours = [loss for loss, role, _ in losses if role == "ours"]
            best = max(
                ours,
                key=lambda loss: statistics.mean(by_seed(runs, task, budget, loss, "validation")),
            )
            _, low, high = table[task, budget, best][2]
            result[task, budget] = "win" if low > 0 else "loss" if high < 0 else "tie"
    return result


def test_the_opening_names_each_comparison_under_its_verdict():
    runs = comparison()
    tree = Tree(report.render(runs))
    verdicts = verdict_of_every_panel(runs)
    sentences = {a["data-sentence"]: text for a, text in tree.having("data-sentence")}
    assert set(verdicts.values()) | {"counts"} == sentences.keys()
    counts = [list(verdicts.values()).count(verdict) for verdict in ("win", "tie", "loss")]
    paid, rest = sentences["counts"].split(" of ", 1)
    assert [paid.split()[-1], *re.findall(r"(?:difference|worse) in (\w+)", rest)] == [
        str(count or "none") for count in counts
    ]
    assert f"{len(verdicts)} comparisons" in rest
    for (task, budget), verdict in verdicts.items():
        assert re.search(rf"(on|,|and) {re.escape(task)} \([^()]*at {budget}", sentences[verdict])
    glance = {
        (a["data-glance-task"], a["data-glance-budget"]): a["data-glance-verdict"]
        for a, _ in tree.having("data-glance-task")
    }
    assert glance == verdicts


def test_reversed_data_make_the_opening_say_the_opposite():
    two = [(*task[:5], [task[5][0], task[5][-1]]) for task in TASKS]
    forward, backward = (
        {
            s.verdict: s.text
            for s in words.opening(panels(comparison(tasks=two, reversed_roles=swap)["records"]))
        }
        for swap in (False, True)
    )

    def tasks_of(text):
        return {task[0] for task in TASKS if f" {task[0]} (" in text}

    assert tasks_of(forward["win"]) == tasks_of(backward["loss"])
    assert tasks_of(forward["loss"]) == tasks_of(backward["win"])
    assert (
        "hopeless-positives (designed data; bce against direct_ap: \N{MINUS SIGN}2"
        in backward["loss"]
    )
    assert backward["win"].startswith("It helped on")
    assert backward["loss"].startswith("It was worse on")


def test_all_wins_and_no_wins_are_said_as_such():
    task = [TASKS[3]]
    won = words.opening(panels(comparison(tasks=task)["records"]))
    assert (
        won[0].text
        == "Training on the metric helped in 2 of 2 comparisons (2 of them on designed data), "
        "made no measurable difference in none and was worse in none."
    )
    two = [(*TASKS[3][:5], [TASKS[3][5][0], TASKS[3][5][-1]])]
    lost = words.opening(panels(comparison(tasks=two, reversed_roles=True)["records"]))
    assert (
        "helped in none of 2 comparisons, made no measurable difference in none and was worse in 2."
        in lost[0].text
    )


def test_one_seed_claims_nothing():
    runs = comparison(seeds=1)
    sentences = words.opening(panels(runs["records"]))
    assert [s.verdict for s in sentences] == [None, "unknown"]
    assert sentences[0].text.startswith("Nothing can be said yet")
    tree = Tree(report.render(runs))
    assert not tree.having("data-low")
    assert not tree.having("data-spread")
    assert {a["data-verdict"] for a, _ in tree.having("data-verdict")} == {"unknown"}
    assert "one seed: no interval" in in_terminal(runs)


@pytest.mark.parametrize(
    ("role", "reason"),
    [("ours", "no baseline was trained"), ("baseline", "no loss of ours was trained")],
)
def test_a_missing_side_is_said(role, reason):
    runs = comparison(seeds=2, tasks=TASKS[:1])
    runs["records"] = [r for r in runs["records"] if r["role"] == role]
    assert reason in report.render(runs)
    assert reason in " ".join(in_terminal(runs).split())


def test_interrupted_runs_leave_gaps_not_errors():
    runs = comparison(tasks=TASKS[:1])
    runs["records"] = [
        r
        for r in runs["records"]
        if not (r["loss"] == "lovasz_softmax" and r["budget"] == "equal time")
    ]
    for record in runs["records"]:
        record["curve"] = [] if record["loss"] == "soft_jaccard" else record["curve"]
    assert "not run" in report.render(runs)
    for record in runs["records"]:
        record.update(curve=[], per_class=None, examples=None)
    bare = report.render(runs)
    assert not [
        title
        for title in ("Learning curves", "Predictions side by side", "Class by class")
        if title in bare
    ]


def test_runs_without_any_difference_still_make_figures():
    """All metrics zero, one look each: every scale of the figures is empty."""
    runs = comparison(seeds=2, tasks=TASKS[:1])
    for record in runs["records"]:
        record["test"] = record["validation"] = dict.fromkeys(record["test"], 0.0)
        record["per_class"]["values"] = [0.0] * len(record["per_class"]["labels"])
        record["curve"] = [{"iteration": 1, "seconds": 0.0, "loss": 1.0, "metric": 0.0}]
    page = report.render(runs)
    assert "no rank correlation" in page
    assert not re.search(r"\b(nan|inf)\b", page)
    assert [s.verdict for s in words.opening(panels(runs["records"]))] == [None, "tie"]


def test_a_task_without_validation_says_where_the_choice_was_made():
    runs = comparison(tasks=TASKS[:2])
    assert "never on test" in words.chance(panels(runs["records"]))
    records = [
        {**record, "validation": {}} for record in runs["records"] if record["task"] == "strokes"
    ]
    assert "on test for strokes" in words.chance(panels(records))
