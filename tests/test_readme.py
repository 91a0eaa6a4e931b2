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
from evalgrad_lab.report.pictures import CLASS_COLOURS, label_picture

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import costs

ROOT = Path(__file__).parent.parent


def test_the_table_of_metrics_is_the_guides():
    assert readme.guide_table((ROOT / "docs/guide.md").read_text()) in readme.README.read_text()


def test_the_table_of_results_is_that_of_the_pages():
    pages = [page.read_text() for page in (readme.LADDER, readme.LAB, readme.PAPERS)]
    assert readme.ladder_table(pages[0]) in readme.README.read_text()
    assert readme.results_table(*pages) in readme.README.read_text()


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
        "| recall@precision | 1 | 0 | 0 | 100% | +1.0 |",
        "| f1 | 0 | 1 | 1 | 10% | +0.0 |",
    ]


LADDER_HEAD = (
    "| data | metric | its | auto | difference | verdict | p | branch taken |\n" + "|---" * 8
)


def ladder_row(name, shown, verdict, taken):
    return f"| {name} | miou | 40.0 | 41.0 | {shown} | {verdict} | 1.00 | {taken} of 5 |"


CLIMBED = [
    "# A title",
    "",
    LADDER_HEAD,
    ladder_row("a", "+0.1 (+0.0 to +0.1)", "win", 5),
    ladder_row("b", "+0.1 (-0.5 to +0.7)", "tie", 1),
    ladder_row("c", "-1.0 (-1.5 to -0.5)", "loss", 4),
    ladder_row("d", "+0.0 (+0.0 to +0.0)", "tie", 0),
    "",
    "Against the other baseline: 3 wins, 1 tie, 0 losses, mean +0.31.",
]
HELD_OUT = [
    "",
    "## Held out until the recipe was frozen",
    "",
    LADDER_HEAD,
    ladder_row("e", "+0.3 (+0.2 to +0.4)", "win", 5),
    "",
    "Against the other baseline: 0 wins, 0 ties, 1 loss, mean -1.07.",
    "",
    "## Sizes",
    "",
    "| data | n |",
    "| a | 3 |",
]


def test_wins_and_losses_of_the_ladder_are_read_from_its_page():
    table = readme.ladder_table("\n".join([*CLIMBED, *HELD_OUT]))
    rows = table.partition("\n\n")[0].split("\n")[2:]
    assert rows == [
        "| a | miou | 40.0 | 41.0 | +0.1 (+0.0 to +0.1) | win |",
        "| c | miou | 40.0 | 41.0 | -1.0 (-1.5 to -0.5) | **loss** |",
        "| e | miou | 40.0 | 41.0 | +0.3 (+0.2 to +0.4) | win |",
    ]
    assert "The other 2 of the 5 tasks are ties.\nIn 1 of them no seed took" in table
    means = [f"Mean of all tasks: {mean} points." for mean in ("+0.63 (± 0.72)", "+0.10 (± 0.37)")]
    last = readme.ladder_table("\n".join([*CLIMBED, *HELD_OUT, "", *means])).split("\n")[-1]
    assert last.endswith("of the ladder: +0.63 (± 0.72); of the tasks held out: +0.10 (± 0.37).")


def test_all_comparisons_are_counted():
    lab = [
        "<!-- demo: written by a command -->",
        "| task | metric | | | | |",
        "|---|---|---|---|---|---|",
        "| scenes, 500 iterations | mIoU | | | +1.0 | win |",
        "| circles, equal time | mIoU | | | -1.0 | **loss** |",
        "| two-mode, 300 iterations, designed data | AP | | | +1.0 | win |",
        "| hopeless, 300 iterations, designed data | AP | | | +0.0 | tie |",
        "",
        "2 wins, 1 tie, 1 loss.",
        "<!-- demo: end -->",
    ]
    claims = ["| paper | verdict |", "| --- | --- |", "| a | **found** |", "| b | not run |"]
    claims += ["| c | **not found** |", "| d | **not testable here: no room: none** |"]
    papers = "\n".join(["<!-- begin claims -->", *claims, "<!-- end claims -->"])
    table = readme.results_table("\n".join([*CLIMBED, *HELD_OUT]), "\n".join(lab), papers)
    counts = [line.strip("|").partition("|")[2] for line in table.split("\n")[2:7]]
    assert counts == [" 1 | 2 | 1 ", " 1 | 0 | 0 ", " 3 | 1 | 1 ", " 1 | 0 | 1 ", " 1 | 1 | 0 "]
    assert table.startswith("Of 3 main claims", table.rindex("\n") + 1)
    assert table.endswith("1 found, 0 undecided, 1 not found, 1 not testable here.")


def test_the_demo_has_a_row_for_every_panel():
    found = panels(comparison()["records"])
    table = readme.demo_table(found)
    assert table.count("\n| ") + 1 == 1 + len(found)
    assert all(panel.title in table for panel in found)
    assert table.count(readme.DESIGNED) == sum(panel.designed for panel in found)


def test_the_figure_shows_the_numbers_of_its_records():
    drawn = (ROOT / "docs/assets/digit_scenes.svg").read_text()
    assert len(re.findall(r"\d\d\.\d ± \d\.\d</text>", drawn)) == len(figure.NAMES)
    assert "<image" not in drawn
    assert "data:" not in drawn


def test_the_figure_draws_every_pixel_of_a_picture_once():
    labels = [[0, 1, 1, 0], [2, 0, 1, 2], [1, 1, 1, 1]]
    drawn = figure.squares(label_picture(labels), 5, 7)
    assert "translate(5 7)" in drawn
    found = [[[] for _ in row] for row in labels]
    for colour, path in re.findall(r'fill="#(\w{6})" d="(.*?)"', drawn):
        for start, row, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path):
            for column in range(int(start), int(start) + int(width)):
                found[int(row)][column].append(tuple(bytes.fromhex(colour)))
    assert found == [[[CLASS_COLOURS[label]] for label in row] for row in labels]


def test_the_caption_is_that_of_the_figure():
    """A mean of paired differences is the difference of the means; each is rounded to 0.1."""
    drawn = (ROOT / "docs/assets/digit_scenes.svg").read_text()
    plain, weighted, *ours = (float(x) for x in re.findall(r">(\d\d\.\d) ± ", drawn))
    assert weighted > plain  # the best baseline
    line = next(x for x in readme.README.read_text().split("\n") if x.startswith("Difference from"))
    said = [float(x) for x in re.findall(r"([+-]\d+\.\d) \(", line)]
    assert said == pytest.approx([x - weighted for x in ours], abs=0.15)


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
