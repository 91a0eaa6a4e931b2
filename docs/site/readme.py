"""Writes the generated tables of README: the guide's, and results from docs/ladder.md and the
comparison of `make demo`; and that of the guide by metric. `make docs` runs it.

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
DEMO, LADDER = ROOT / "runs" / "comparison.json", ROOT / "docs" / "ladder.md"
DIFFERENCE = re.compile(r"([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)")
OTHER = re.compile(r"Against the other baseline: (\d+) wins?, (\d+) ties?, (\d+) loss")
MEAN = re.compile(r"Mean of all tasks: (.*\)) points")
WORDS = {"win": "win", "tie": "tie", "loss": "**loss**", "unknown": "one seed"}


def guide_table(page: str) -> str:
    """The table of docs/guide.md without its last column, with links from the root."""
    rows = page[page.index("| judged by") :].partition("\n\n")[0].split("\n")
    text = "\n".join("|".join(row.split("|")[:4]) + "|" for row in rows)
    return re.sub(r"\]\((?=\w+\.md)", "](docs/", text)


def ladder_table(page: str) -> str:
    """The rows of the ladder's tables, shortened, how many are wins, ties and losses, against the
    baseline that the search chose and against the other, and the mean of each table.
    """
    heads = ["data", "metric", "cross-entropy chosen by the search", "`--loss auto`"]
    lines = [f"| {' | '.join(heads)} | difference (95 %) | |", "|---" * 6 + "|"]
    found = ladder_rows(page)
    for row in found:
        difference = DIFFERENCE.search(row["difference"])
        assert difference, f"{LADDER} has a row without a difference: {row}"
        shown = (row["data"], row["metric"], row["its"], row["auto"], difference[0])
        lines.append(f"| {' | '.join(shown)} | {WORDS[row['verdict']]} |")
    verdicts = [row["verdict"] for row in found]
    means = "; of the tasks held out: ".join(MEAN.findall(page))
    last = ["", f"Mean difference of the tasks of the ladder: {means}."] if means else []
    return "\n".join([*lines, "", counted(verdicts), *against_the_other(page), *last])


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
    lines = ["| judged by | tasks | wins, ties, losses | branch taken | mean difference |"]
    lines.append("|---" * 5 + "|")
    for metric, rows in sorted(families.items(), key=lambda pair: -_taken(pair[1])):
        total = sum(float(row["difference"].split(" ")[0]) for row in rows)
        mean = round(total / len(rows), 1) + 0.0  # no -0.0
        verdicts = counted([row["verdict"] for row in rows]).rstrip(".")
        lines.append(f"| {metric} | {len(rows)} | {verdicts} | {_taken(rows):.0%} | {mean:+.1f} |")
    return "\n".join(lines)


def _taken(rows: list[dict[str, str]]) -> float:
    """The share of the runs that ended with the metric's loss."""
    pairs = [row["branch taken"].split(" of ") for row in rows]
    return sum(int(taken) for taken, _ in pairs) / sum(int(runs) for _, runs in pairs)


def against_the_other(page: str) -> list[str]:
    """The counts of the ladder's tables against the baseline that was not chosen, added up."""
    tables = OTHER.findall(page)  # of each its wins, ties and losses
    verdicts = [
        verdict
        for table in tables
        for verdict, count in zip(("win", "tie", "loss"), table, strict=True)
        for _ in range(int(count))
    ]
    return ["", f"Against the other baseline: {counted(verdicts)}"] if tables else []


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
    made = ", made to show it" * panel.designed
    return (
        f"| {panel.title}, {panel.budget}{made} | {panel.metric} |"
        f" {theirs.loss} {100 * theirs.mean:.1f} | {ours.loss} {100 * ours.mean:.1f} |"
        f" {100 * ours.difference.mean:+.1f} ({low:+.1f} to {high:+.1f}) |"
        f" {WORDS[panel.verdict]} |"
    )


def counted(verdicts: list[str]) -> str:
    """How many there are of each.

    >>> counted(["win", "tie", "win"])
    '2 wins, 1 tie, 0 losses.'
    """
    plurals = {"win": "wins", "tie": "ties", "loss": "losses"}
    counts = {verdict: verdicts.count(verdict) for verdict in plurals}
    return ", ".join(f"{n} {v if n == 1 else plurals[v]}" for v, n in counts.items()) + "."


if __name__ == "__main__":
    for target, name, path, table in (
        (GUIDE, "expected", LADDER, metrics_table),
        (README, "guide", GUIDE, guide_table),
        (README, "ladder", LADDER, ladder_table),
        (README, "demo", DEMO, lambda text: demo_table(panels(json.loads(text)["records"]))),
    ):
        if path.exists():
            write_between(target, name, table(path.read_text()))
        else:
            print(f"no {path.relative_to(ROOT)}: table {name} of {target.name} is left as it is")
