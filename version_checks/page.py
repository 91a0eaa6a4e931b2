"""docs/versions.md: what was run under which versions, and what came of it."""

from collections import Counter
from typing import Any

from version_checks.environments import ENVIRONMENTS, ROOT
from version_checks.run import GROUPS

PAGE = ROOT / "docs" / "versions.md"
HEAD = """# Versions

What `make matrix` ran, in an environment of its own for each line: one wheel, built once, serves
all of them. The numbers are tests that passed; a test that failed is named below. `make test` runs
everything with the torch of `constraints.txt`, on Python 3.11.

| Python | torch | lightning | {groups} | minutes | commit |
|---|---|---|{rules}|---|---|
"""
HOW = """
- {files}. Property tests draw 3 examples here, 25 in `make test`. The lab is run in the first line
  and in the last, with the oldest and the newest lightning.
- A torch that the registry has only with CUDA is installed without its CUDA packages and without
  triton; a library that knows of no device stands in for the missing ones. The CPU alone is tested.
- Warnings are not errors here: those of torch and lightning differ from version to version.
"""


def _cell(counts: dict[str, int]) -> str:
    if not counts:
        return ""
    failed = f", **{counts['failed']} failed**" if counts.get("failed") else ""
    return f"{counts.get('passed', 0)}{failed}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def row(result: dict[str, Any]) -> str:
    """A line of the table."""
    versions = result["versions"]
    cells = [versions["python"], versions["torch"], versions.get("lightning", "")]
    cells += [_cell(result["counts"][group]) for group in GROUPS]
    cells += [f"{result['seconds'] / 60:.0f}", result["commit"]]
    return f"| {' | '.join(cells)} |\n"


def page(results: list[dict[str, Any]], left_out: dict[str, str]) -> str:
    """The whole page; `left_out` says why an environment has no result."""
    named = (f"**{group}**: {', '.join(f'`{name}`' for name in GROUPS[group])}" for group in GROUPS)
    text = HEAD.format(groups=" | ".join(GROUPS), rules="|".join("---" for _ in GROUPS))
    text += "".join(map(row, results)) + HOW.format(files="; ".join(named))
    reasons: Counter[str] = Counter()
    for result in results:
        reasons.update(result["reasons"])
    sections = {
        "Not run": [f"Python and torch {name}: {why}" for name, why in left_out.items()],
        "Failed": [f"{one['name']}: `{test}`" for one in results for test in one["failures"]],
        "Skipped": [f"{_times(count)}: {why}" for why, count in reasons.most_common()],
    }
    for title, lines in sections.items():
        if lines:
            text += f"\n## {title}\n\n" + "".join(f"- {line}\n" for line in lines)
    return text


def floors() -> dict[str, str]:
    """The oldest versions of the table, which are those that pyproject.toml declares."""
    oldest = ENVIRONMENTS[0]
    return {
        "python": oldest.python,
        "torch": oldest.torch,
        "lightning": (oldest.lab or "").removeprefix("lightning=="),
    }
