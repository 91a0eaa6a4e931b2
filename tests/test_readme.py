"""The parts of README that commands write, and the version, which is written in three places."""

import re
import sys
from pathlib import Path

import pytest
from synthetic_runs import comparison

import evalgrad
from docs.site import figure, readme
from evalgrad_lab.recipe import LEAST
from evalgrad_lab.report.panels import panels

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import costs

ROOT = Path(__file__).parent.parent


def test_the_table_of_metrics_is_the_guides():
    assert readme.guide_table((ROOT / "docs/guide.md").read_text()) in readme.README.read_text()


def test_the_table_of_results_is_the_ladders():
    assert readme.ladder_table((ROOT / "docs/ladder.md").read_text()) in readme.README.read_text()


def test_the_guides_table_by_metric_is_the_ladders():
    assert readme.metrics_table((ROOT / "docs/ladder.md").read_text()) in readme.GUIDE.read_text()


def test_the_guide_says_of_the_ladder_what_its_rows_say():
    page, guide = (ROOT / "docs/ladder.md").read_text(), (ROOT / "docs/guide.md").read_text()
    guide = " ".join(guide.split())
    rows = readme.ladder_rows(page)
    pixels = [row["verdict"] for row in rows if row["metric"] in ("miou", "dice")]
    assert f"{pixels.count('win')} of {len(pixels)} tasks gained and none lost" in guide
    assert "loss" not in pixels
    gains = {row["data"]: row["difference"].split()[0] for row in rows}
    noisy, other = gains["noisy-pairs"], gains["mnist-pairs"]
    assert f"with noisy labels {noisy} on one task and {other} on another" in guide
    positives = re.findall(r"\| \d+/(\d+)/\d+ \|", page)  # of validation
    assert sorted(map(int, positives))[:3] == [10, 10, 25]
    assert LEAST > 10
    assert "did not try it on two tasks with 10 positives in validation" in guide
    means = re.findall(r"Mean of all tasks: \+([\d.]+) \(.* ± ([\d.]+) over tasks\)", page)
    assert all(float(half) > float(mean) for mean, half in means)


def test_metrics_are_counted_over_their_tasks():
    head = "| data | metric | difference | verdict | branch taken |\n|---|---|---|---|---|"
    rows = [
        "| a | f1 | -0.3 (-0.5 to -0.1) | loss | 0 of 5 |",
        "| b | recall@precision=0.9 | +1.0 (+0.5 to +1.5) | win | 5 of 5 |",
        "| c | f1 | +0.2 (-0.5 to +0.9) | tie | 1 of 5 |",
    ]
    table = readme.metrics_table(
        "\n".join([head, *rows, "", "## Sizes", "| data | n |", "| a | 3 |"])
    )
    assert table.split("\n")[2:] == [
        "| recall@precision | 1 | 1 win, 0 ties, 0 losses | 100% | +1.0 |",
        "| f1 | 2 | 0 wins, 1 tie, 1 loss | 10% | +0.0 |",
    ]


def test_wins_ties_and_losses_of_the_ladder_are_read_from_its_page():
    head = "| data | metric | reference | its | auto | difference | verdict | p |\n" + "|---|" * 8
    rows = [
        f"| {name} | miou | cross_entropy | 40.0 | 41.0 | {shown} | {verdict} | 1.00 |"
        for name, shown, verdict in (
            ("a", "+0.1 (+0.0 to +0.1)", "win"),
            ("b", "+0.1 (-0.5 to +0.7)", "tie"),
            ("c", "-1.0 (-1.5 to -0.5)", "loss"),
        )
    ]
    table = readme.ladder_table("\n".join(["# A title", "", head, *rows, "", "1 wins"]))
    assert table.endswith("1 win, 1 tie, 1 loss.")
    others = ["6 wins, 1 ties, 0 losses, mean +0.31", "1 wins, 4 ties, 0 losses, mean +1.07"]
    said = [f"Against the other baseline: {counts}." for counts in others]
    both = readme.ladder_table("\n".join(["", head, *rows, "", *said]))
    assert both == f"{table}\n\nAgainst the other baseline: 7 wins, 5 ties, 0 losses."
    means = [f"Mean of all tasks: {mean} points." for mean in ("+0.63 (± 0.72)", "+0.10 (± 0.37)")]
    last = readme.ladder_table("\n".join(["", head, *rows, "", *means])).split("\n")[-1]
    assert last.endswith("of the ladder: +0.63 (± 0.72); of the tasks held out: +0.10 (± 0.37).")
    assert "| c | miou | 40.0 | 41.0 | -1.0 (-1.5 to -0.5) | **loss** |" in table


def test_the_demo_has_a_row_for_every_panel():
    found = panels(comparison()["records"])
    table = readme.demo_table(found)
    assert table.count("\n| ") + 1 == 1 + len(found)
    assert all(panel.title in table for panel in found)


def test_the_figure_shows_the_numbers_of_its_records():
    drawn = (ROOT / "docs/assets/digit_scenes.svg").read_text()
    assert len(re.findall(r"\d\d\.\d ± \d\.\d</text>", drawn)) == len(figure.NAMES)
    assert "<image" in drawn


@pytest.mark.parametrize("path", ["pyproject.toml", "CITATION.cff"])
def test_the_version_is_written_alike(path):
    text = (ROOT / path).read_text()
    found = re.search(r'^version\s*[=:]\s*"?([\d.]+)', text, re.M)
    assert found
    assert found[1] == evalgrad.__version__


def test_costs_that_were_measured_reach_their_lines(monkeypatch):
    """And a line without a result stays as it is."""
    measured = [
        {"loss": loss, "allocator": "default", "threads": 1, "x": x}
        for loss in (loss for loss, _ in costs.README.values() if loss != "FBeta")
        for x in (2.04, 1.0, 0.512)
    ]
    monkeypatch.setattr(costs, "measured", lambda script: True)
    monkeypatch.setattr(costs, "rows_of", lambda script: measured)
    found = costs.readme_costs()
    lines = [line for line in readme.README.read_text().split("\n") if line.startswith("| [`")]
    written = {line: costs.with_cost(line, found) for line in lines}
    assert [line for line in lines if "2 / 1 / 0.51x" not in written[line]] == [lines[-1]]
    assert written[lines[-1]] == lines[-1]
    assert lines[-1].startswith("| [`FBeta`]")


def test_every_cost_of_readme_is_measured():
    source = (ROOT / "benchmarks/sizes.py").read_text()
    assert all(f'"{loss}": ' in source for loss, _ in costs.README.values())
