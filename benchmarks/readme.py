"""Writes the costs into the table of README.md, from what `make bench` left in results/: `make docs`.

A cost is the time of forward and backward over that of the yardstick on the same tensor, least to largest over the shapes and the
states of training that the benchmark has; torch's allocator as it is, one thread and all of them.
"""

import json
from collections.abc import Callable
from pathlib import Path

from timing import RESULTS

README = Path(__file__).parents[1] / "README.md"
Row = dict[str, object]


def rows_of(script: str) -> list[Row]:
    return [row for row in json.loads((RESULTS / f"{script}.json").read_text())["rows"] if row["allocator"] == "default"]


def cost(rows: list[Row], ratio: Callable[[Row], float], yardstick: str = "") -> str:
    """Such as '0.6-1.9x, 2 threads 0.7-2.2x'."""
    parts = []
    for threads in sorted({row["threads"] for row in rows}):
        values = [ratio(row) for row in rows if row["threads"] == threads]
        low, high = f"{min(values):.1f}", f"{max(values):.1f}"
        label = "" if threads == 1 else f"{threads} threads "
        parts.append(label + (f"{low}x" if low == high else f"{low}-{high}x"))
    return ", ".join(parts) + yardstick


def costs() -> dict[str, str]:
    """Loss, as its line in the table begins -> cost."""
    lovasz, pooling, topk, ranking = (rows_of(name) for name in ("lovasz", "loss_max_pooling", "smooth_topk", "direct_loss"))
    softmax, hinge = ([row for row in lovasz if row["loss"] == name] for name in ("lovasz_softmax", "lovasz_hinge"))
    pooled = [row for row in pooling if row["what"] == "cross-entropy + pooling"]
    five = [row for row in topk if row.get("k") == 5]
    lists = [row for row in ranking if row["what"] == "1 x 10000"]
    return {
        "lovasz_softmax_loss`": cost(softmax, lambda row: row["exact x"]),
        "lovasz_softmax_loss(bins=4096)": cost(softmax, lambda row: row["bins=4096 x"]),
        "lovasz_hinge_loss": cost(hinge, lambda row: row["exact x"], " of BCE"),
        "loss_max_pooling": cost(pooled, lambda row: row["ratio"]),
        "smooth_topk_loss": cost(five, lambda row: row["kernel x"]),
        "direct_average_precision_loss": cost(lists, lambda row: row["AP+ ms"] / row["sort ms"], " of a sort"),
    }


def with_cost(line: str, found: dict[str, str]) -> str:
    """The line of the table with its last cell replaced, if it is that of a loss."""
    for name, text in found.items():
        if line.startswith(f"| [`{name}"):
            return f"{line.rstrip(' |').rpartition('|')[0]}| {text} |"
    return line


if __name__ == "__main__":
    found = costs()
    README.write_text("\n".join(with_cost(line, found) for line in README.read_text().split("\n")))
