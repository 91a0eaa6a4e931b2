"""Writes the generated tables of README: the guide's, and the results in short; with them what they
are counted from, the guide's table by metric and docs/lab.md's of `make demo`. `make docs` runs it.

What has not been run is left as it is; no number is written by hand.
"""

import json
import math
import re
from pathlib import Path

from benchmarks.timing import write_between
from evalgrad_lab.report.panels import Panel, panels

ROOT = Path(__file__).parents[2]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
LADDER, LAB = ROOT / "docs" / "ladder.md", ROOT / "docs" / "lab.md"
PAPERS, DEMO = ROOT / "docs" / "papers" / "README.md", ROOT / "runs" / "comparison.json"
DIFFERENCE = re.compile(r"([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)")
OTHER = re.compile(r"Against the other baseline: (\d+) wins?, (\d+) ties?, (\d+) loss")
MEAN = re.compile(r"Mean of all tasks: (.*\)) points")
WORDS = {"win": "win", "tie": "tie", "loss": "**loss**", "unknown": "one seed"}
PLURALS = {"win": "wins", "tie": "ties", "loss": "losses"}
DESIGNED = ", designed data"


def guide_table(page: str) -> str:
    """The table of docs/guide.md without its last column, with links from the root."""
    rows = page[page.index("| judged by") :].partition("\n\n")[0].split("\n")
    text = "\n".join("|".join(row.split("|")[:4]) + "|" for row in rows)
    return re.sub(r"\]\((?=\w+\.md)", "](docs/", text)


def ladder_table(page: str) -> str:
    """The rows of the ladder's tables that are no ties, shortened, what the ties are, and the
    means of all tasks.
    """
    heads = ["data", "metric", "cross-entropy chosen by the search", "`--loss auto`"]
    lines = [f"| {' | '.join(heads)} | difference (95 %) | |", "|---" * 6 + "|"]
    found = ladder_rows(page)
    ties = [row for row in found if row["verdict"] == "tie"]
    for row in (row for row in found if row not in ties):
        difference = DIFFERENCE.search(row["difference"])
        assert difference, f"{LADDER} has a row without a difference: {row}"
        shown = (row["data"], row["metric"], row["its"], row["auto"], difference[0])
        lines.append(f"| {' | '.join(shown)} | {WORDS[row['verdict']]} |")
    same = sum(row["branch taken"].startswith("0 of ") for row in ties)
    others = f"The other {len(ties)} of the {len(found)} tasks are ties."
    never = f"In {same} of them no seed took the second branch, so the difference is 0."
    means = "; of the tasks held out: ".join(MEAN.findall(page))
    last = ["", f"Mean difference of the tasks of the ladder: {means}."] if means else []
    return "\n".join([*lines, "", others, never, *last])


def ladder_rows(page: str) -> list[dict[str, str]]:
    """The rows of both tables of results, by column."""
    columns, found = [""], []
    for line in page.partition("\n## Sizes")[0].split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| data "):
            columns = cells
        elif line.startswith("| "):
            found.append(dict(zip(columns, cells, strict=True)))
    return found


def metrics_table(page: str) -> str:
    """What came of the ladder's tasks, metric by metric; those that gained most often first."""
    families: dict[str, list[dict[str, str]]] = {}
    for row in ladder_rows(page):
        families.setdefault(row["metric"].partition("=")[0], []).append(row)
    lines = ["| judged by | wins | ties | losses | branch taken | mean difference |"]
    lines.append("|---" * 6 + "|")
    for metric, rows in sorted(families.items(), key=lambda pair: -_taken(pair[1])):
        total = sum(float(row["difference"].split(" ")[0]) for row in rows)
        mean = round(total / len(rows), 1) + 0.0  # no -0.0
        counts = tallied([row["verdict"] for row in rows])
        lines.append(f"| {metric} | {counts} | {_taken(rows):.0%} | {mean:+.1f} |")
    return "\n".join(lines)


def tallied(verdicts: list[str]) -> str:
    """How many wins, ties and losses there are, as the cells of a row."""
    return " | ".join(str(verdicts.count(one)) for one in PLURALS)


def _taken(rows: list[dict[str, str]]) -> float:
    """The share of the runs that ended with the metric's loss."""
    pairs = [row["branch taken"].split(" of ") for row in rows]
    return sum(int(taken) for taken, _ in pairs) / sum(int(runs) for _, runs in pairs)


def results_table(ladder: str, lab: str, papers: str) -> str:
    """Wins, ties and losses of all comparisons, and the verdicts on the papers' claims."""
    climbed, _, held_out = ladder.partition("\n## Held out")
    panels_of = rows_between(lab, "demo: written by [^>]*", "demo: end")
    designed = [row[-1] for row in panels_of if row[0].endswith(DESIGNED)]
    others = [row[-1] for row in panels_of if not row[0].endswith(DESIGNED)]
    auto = "`--loss auto` against"
    rows = [
        (
            f"{auto} the baseline chosen by the search, [all tasks](docs/ladder.md)",
            verdicts_of(climbed),
        ),
        ("the same, on tasks held out until the recipe was final", verdicts_of(held_out)),
        (f"{auto} the baseline not chosen, all of these tasks", against_the_other(ladder)),
        ("best loss against best baseline, [`make demo`](docs/lab.md#results)", others),
        ("the same, on data designed to show a gain", designed),
    ]
    lines = ["| comparison | wins | ties | losses |", "|---|---|---|---|"]
    for name, found in rows:
        lines.append(f"| {name} | {tallied(found)} |")
    return "\n".join([*lines, "", claims(papers)])


def verdicts_of(page: str) -> list[str]:
    """Those of the rows of a part of the ladder's page."""
    return [row["verdict"] for row in ladder_rows(page)]


def claims(page: str) -> str:
    """How many of the papers' main claims have each verdict."""
    found = [
        row[-1].strip("*").partition(":")[0]
        for row in rows_between(page, "begin claims", "end claims")
    ]
    run = [one for one in found if one != "not run"]
    said = ", ".join(
        f"{run.count(one)} {one}"
        for one in ("found", "undecided", "not found", "not testable here")
    )
    papers = "[five papers](docs/papers/README.md)"
    return f"Of {len(run)} main claims of the {papers} that we tested: {said}."


def rows_between(page: str, begin: str, end: str) -> list[list[str]]:
    """The cells of a table between two comments, without its head; a loss is not bold."""
    found = re.search(f"<!-- {begin} -->\n(.*?)<!-- {end} -->", page, re.S)
    assert found, f"no table {begin}"
    lines = [line for line in found[1].split("\n") if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [[*row[:-1], row[-1].strip("*")] for row in rows[1:] if not row[0].startswith("---")]


def against_the_other(page: str) -> list[str]:
    """The verdicts of the ladder's tables against the baseline that was not chosen."""
    tables = OTHER.findall(page)  # of each its wins, ties and losses
    return [
        verdict
        for table in tables
        for verdict, count in zip(PLURALS, table, strict=True)
        for _ in range(int(count))
    ]


def demo_table(found: list[Panel]) -> str:
    """The panels of the demo: the best baseline and the best of ours, both chosen on validation."""
    lines = ["| task | metric | best baseline | best of ours | difference (95 %) | |"]
    lines.append("|---" * 6 + "|")
    for panel in found:
        lines.append(_panel_row(panel))
    return "\n".join([*lines, "", counted([panel.verdict for panel in found])])


def _panel_row(panel: Panel) -> str:
    ours, theirs = panel.champion, panel.reference
    assert ours is not None
    assert theirs is not None
    assert ours.difference is not None
    low, high = (100 * end for end in ours.difference.interval or (math.nan, math.nan))
    designed = DESIGNED * panel.designed
    return (
        f"| {panel.title}, {panel.budget}{designed} | {panel.metric} |"
        f" {theirs.loss} {100 * theirs.mean:.1f} | {ours.loss} {100 * ours.mean:.1f} |"
        f" {100 * ours.difference.mean:+.1f} ({low:+.1f} to {high:+.1f}) |"
        f" {WORDS[panel.verdict]} |"
    )


def counted(verdicts: list[str]) -> str:
    """How many there are of each.

    >>> counted(["win", "tie", "win"])
    '2 wins, 1 tie, 0 losses.'
    """
    counts = {verdict: verdicts.count(verdict) for verdict in PLURALS}
    return ", ".join(f"{n} {v if n == 1 else PLURALS[v]}" for v, n in counts.items()) + "."


if __name__ == "__main__":
    for target, name, path, table in (
        (GUIDE, "expected", LADDER, metrics_table),
        (README, "guide", GUIDE, guide_table),
        (README, "ladder", LADDER, ladder_table),
        (LAB, "demo", DEMO, lambda text: demo_table(panels(json.loads(text)["records"]))),
    ):
        if path.exists():
            write_between(target, name, table(path.read_text()))
        else:
            print(f"no {path.relative_to(ROOT)}: table {name} of {target.name} is left as it is")
    pages = (page.read_text() for page in (LADDER, LAB, PAPERS))
    write_between(README, "results", results_table(*pages))
