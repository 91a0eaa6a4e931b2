"""Writes the costs into README.md and the pages of the losses, from what `make bench` left in
results/: `make docs`.

A cost is the time of forward and backward over that of the yardstick on the same tensor, least to
largest over the shapes and the states of training that the benchmark has.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from timing import RESULTS, write_between

ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


class Cost(NamedTuple):
    """A line of a page: which rows of a benchmark it sums up, and what it reads there."""

    label: str
    chosen: Callable[[Row], bool]
    ratio: Callable[[Row], float]


def _is(name: str, *values: object) -> Callable[[Row], bool]:
    return lambda row: row.get(name) in values


def _read(name: str) -> Callable[[Row], float]:
    return lambda row: row[name]


def _per_sort(name: str) -> Callable[[Row], float]:
    return lambda row: row[f"{name} ms"] / row["sort ms"]


SOFTMAX, HINGE = _is("loss", "lovasz_softmax"), _is("loss", "lovasz_hinge")
LISTS = _is("what", "1 x 10000")
PAGES = {
    "lovasz": [
        Cost("`lovasz_softmax_loss` / cross-entropy", SOFTMAX, _read("exact x")),
        Cost("the same, an eighth of the pixels ignored", SOFTMAX, _read("ignore_index x")),
        Cost("the same, `bins=4096`", SOFTMAX, _read("bins=4096 x")),
        Cost(
            "Algorithm 1 in torch, trained",
            lambda row: SOFTMAX(row) and "algorithm 1 x" in row,
            _read("algorithm 1 x"),
        ),
        Cost(
            "`lovasz_hinge_loss` / BCE, half-trained to well-trained",
            lambda row: HINGE(row) and row["logits"] != "untrained",
            _read("exact x"),
        ),
        Cost(
            "the same, untrained",
            lambda row: HINGE(row) and row["logits"] == "untrained",
            _read("exact x"),
        ),
        Cost(
            "the same, an eighth of the pixels ignored, untrained to well-trained",
            HINGE,
            _read("ignore_index x"),
        ),
        Cost("the same, `bins=4096`, untrained to well-trained", HINGE, _read("bins=4096 x")),
    ],
    "loss_max_pooling": [
        Cost(
            "pooling of 2^20 losses / Algorithm 1 with a sort, in torch",
            _is("what", "pooling"),
            _read("ratio"),
        ),
        Cost(
            "cross-entropy with pooling / cross-entropy",
            _is("what", "cross-entropy + pooling"),
            _read("ratio"),
        ),
    ],
    "smooth_topk": (
        [
            Cost(
                f"k={k}, {shape} / cross-entropy",
                lambda row, k=k, shape=shape: _topk(row, k, shape),
                _read("kernel x"),
            )  # type: ignore[misc]
            for k, shape in ((5, "256x1000"), (5, "256x10000"), (5, "64x100000"), (20, "256x1000"))
        ]
        + [Cost("k=5, in torch without the kernel / cross-entropy", _is("k", 5), _read("torch x"))]
    ),
    "direct_loss": [
        Cost(f"{name}, one list of 10,000 / sort and gather", LISTS, _per_sort(name))
        for name in ("AP+", "AP-", "AP hinge", "NDCG+", "Jaccard+")
    ],
}


def _topk(row: Row, k: int, shape: str) -> bool:
    return row.get("k") == k and row["shape"] == shape


def measured(script: str) -> bool:
    return (RESULTS / f"{script}.json").exists()


def rows_of(script: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / f"{script}.json").read_text())["rows"]
    return rows


def extent(values: list[float]) -> str:
    """Such as '0.6-1.9x'."""
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return f"{low}x" if low == high else f"{low}-{high}x"


def page_table(costs: list[Cost], rows: list[Row]) -> str:
    """One line per cost, one column per allocator and number of threads."""
    settings = sorted({(row["allocator"], row["threads"]) for row in rows})
    names = [
        f"{threads} thread{'s' * (threads > 1)},"
        f" {'memory kept' if kept == 'keeping' else 'fresh memory'}"
        for kept, threads in settings
    ]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for cost in costs:
        cells = []
        for setting in settings:
            found = [
                cost.ratio(row)
                for row in rows
                if (row["allocator"], row["threads"]) == setting and cost.chosen(row)
            ]
            cells.append(extent(found))
        lines.append(f"| {cost.label} | {' | '.join(cells)} |")
    return "\n".join([*lines, *growth(rows)])


def growth(rows: list[Row]) -> list[str]:
    """How the time grows with the size, where the benchmark has looked."""
    found = [
        row
        for row in rows
        if "slope" in row and (row["allocator"], row["threads"]) == ("default", 1)
    ]
    said = [f"{row.get('shape') or row['what']}: {row['slope']:.2f}" for row in found]
    return ["", f"Slope of log time over log size: {'; '.join(said)}."] if said else []


# How a line of README's table begins -> the loss in results/sizes.json, and what it is compared
# with if that is not cross-entropy.
README = {
    "lovasz_softmax_loss`": ("lovasz_softmax_loss", ""),
    "lovasz_softmax_loss(bins=4096)": ("lovasz_softmax_loss(bins=4096)", ""),
    "lovasz_hinge_loss`": ("lovasz_hinge_loss", " of BCE"),
    "lovasz_hinge_loss(bins=4096)": ("lovasz_hinge_loss(bins=4096)", " of BCE"),
    "loss_max_pooling": ("LossMaxPooling", ""),
    "bootstrapped_cross_entropy": ("focal_loss", " (focal)"),
    "soft_jaccard_loss": ("soft_jaccard_loss", ""),
    "smooth_topk_loss": ("smooth_topk_loss", ""),
    "direct_average_precision_loss": ("direct_average_precision_loss", " of BCE"),
    "direct_graded_ndcg_loss": ("direct_graded_ndcg_loss", " of BCE"),
    "retrieval_average_precision_loss": (
        "retrieval_average_precision_loss",
        " of cross-entropy over the same similarities",
    ),
    "FBeta": ("FBeta", " of BCE"),
}


def readme_costs() -> dict[str, str]:
    """Line of the table -> cost on small / middle / large tensors, one thread, fresh memory."""
    if not measured("sizes"):
        return {}
    rows = [row for row in rows_of("sizes") if (row["allocator"], row["threads"]) == ("default", 1)]
    seen = {row["loss"] for row in rows}  # results may be older than a line: it stays as it is
    return {
        line: " / ".join(f"{row['x']:.2g}" for row in rows if row["loss"] == loss) + f"x{yardstick}"
        for line, (loss, yardstick) in README.items()
        if loss in seen
    }


def with_cost(line: str, found: dict[str, str]) -> str:
    """The line of the table with its last cell replaced, if it is that of a loss."""
    for name, text in found.items():
        if line.startswith(f"| [`{name}"):
            *cells, _ = line.split("|")[1:-1]
            return f"|{'|'.join(cells)}| {text} |"
    return line


if __name__ == "__main__":
    for script, costs in PAGES.items():
        if not measured(script):
            print(f"no results of benchmarks/{script}.py: its page is left as it is")
            continue
        write_between(ROOT / "docs" / f"{script}.md", "cost", page_table(costs, rows_of(script)))
    found, readme = readme_costs(), ROOT / "README.md"
    readme.write_text("\n".join(with_cost(line, found) for line in readme.read_text().split("\n")))
