"""Copies the description of an argument into every docstring that has the same one: `make docs`.

What an option does is written once, in the function that the others follow. Editors and the
reference read docstrings from the source, so the text has to be in the source of each: a `__doc__`
that is put together when the module is imported would be empty there.
`tests/test_reference.py` fails where a copy differs from what was written.
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

from docs.site.public import Public, names, parameters

FIRST = re.compile(r" {8}(\w+): ")

# Who repeats whose arguments. Without a list of names: all that the two share. A module repeats
# its function without being named here.
SHARED: dict[str, list[tuple[str, str]]] = {
    "soft_dice_loss": [("soft_jaccard_loss", "")],
    "soft_tversky_loss": [("soft_jaccard_loss", "")],
    "topk_entropy_loss": [("topk_svm_loss", "")],
    "inverse_frequency_weights": [("median_frequency_weights", "")],
    "average_precision_perceptron_loss": [("average_precision_hinge_loss", "")],
    "zero_one_hinge_loss": [("direct_zero_one_loss", "")],
    "zero_one_perceptron_loss": [("direct_zero_one_loss", "")],
    "direct_ndcg_loss": [
        ("direct_average_precision_loss", "scores epsilon direction mask dim reduction")
    ],
    "direct_graded_ndcg_loss": [("direct_average_precision_loss", "mask dim reduction")],
    "loss_max_pooling_weights": [("loss_max_pooling", "")],
    "topk_predict": [("topk_probabilities", "temperature")],
    "dice": [("jaccard_index", "")],
    "tversky_index": [("jaccard_index", "")],
    "tversky_from_counts": [
        ("jaccard_from_counts", ""),
        ("tversky_index", "misses false_alarms"),
    ],
    "jaccard_index": [("jaccard_from_counts", "classes zero_division")],
    "ndcg": [("average_precision", "scores dim mask reduction")],
    "roc_auc": [("average_precision", "scores dim mask reduction")],
    "partial_roc_auc": [
        ("average_precision", "scores dim mask reduction"),
        ("roc_auc", "ties zero_division"),
    ],
    "recall_at_precision": [("precision_at_recall", "scores dim mask zero_division reduction")],
    "sensitivity_at_specificity": [("precision_at_recall", "scores dim mask reduction")],
    "pr_auc": [("precision_at_recall", "scores dim mask zero_division reduction")],
    "recall_at_k": [("precision_at_k", "scores dim mask ties reduction")],
    "reciprocal_rank": [("precision_at_k", "scores dim mask ties reduction")],
    "hit_rate_at_k": [("precision_at_k", "scores dim mask ties reduction")],
    "r_precision": [("precision_at_k", "scores dim mask ties reduction")],
    "map_at_r": [
        ("precision_at_k", "scores dim mask reduction"),
        ("average_precision", "ties"),
    ],
    "dice_mask": [("jaccard_mask", "")],
    "greedy_jaccard_labels": [("dataset_jaccard_labels", "probabilities mask")],
    "PerformanceSampler": [("EquibatchSampler", "")],
    "PrecisionAtRecall": [("FBeta", "OPTIONS")],
    "RecallAtPrecision": [("FBeta", "OPTIONS")],
    "SensitivityAtSpecificity": [("FBeta", "OPTIONS")],
    "ROCAUC": [("FBeta", "OPTIONS")],
    "PartialROCAUC": [("FBeta", "OPTIONS")],
    "PRAUC": [("FBeta", "OPTIONS")],
    "GlobalBatch": [("global_batch", "")],
}
OPTIONS = (
    "labels solver surrogate dual_lr max_multiplier momentum project_every augment average"
    " ignore_index"
)


def sources(public: Public) -> list[tuple[str, set[str] | None]]:
    """The names that this one copies from, and which arguments; None: all."""
    given = SHARED.get(public.name, [])
    if function := getattr(public.value, "function", None):
        given = [(function.__name__, "")]
    return [
        (name, set((OPTIONS if chosen == "OPTIONS" else chosen).split()) or None)
        for name, chosen in given
    ]


def node_of(value: Any) -> tuple[Path, Any]:
    """The definition of a function or class, and the file that has it."""
    value = inspect.unwrap(value)
    path = Path(inspect.getsourcefile(value))
    tree = ast.parse(path.read_text())
    return path, next(n for n in tree.body if getattr(n, "name", "") == value.__name__)


def entries(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each argument in the `Args:` of a docstring, as they are in the source."""
    found: dict[str, list[str]] = {}
    if "    Args:" not in lines:
        return found
    for line in lines[lines.index("    Args:") + 1 :]:
        if first := FIRST.match(line):
            found[first[1]] = [line]
        elif line.startswith(" " * 12) and found:
            list(found.values())[-1].append(line)
        else:
            break
    return found


def docstring_lines(value: Any) -> list[str]:
    path, node = node_of(value)
    text = node.body[0]
    return path.read_text().split("\n")[text.lineno - 1 : text.end_lineno]


def with_arguments(lines: list[str], wanted: list[str], texts: dict[str, list[str]]) -> list[str]:
    """The docstring with these arguments in its `Args:`, in the order of the signature."""
    before = entries(lines)
    listed = [line for name in wanted for line in texts.get(name) or before.get(name, [])]
    if before:
        start = lines.index("    Args:") + 1
        return [*lines[:start], *listed, *lines[start + sum(map(len, before.values())) :]]
    titles = ("    Returns:", "    Example:")
    end = next((i for i, line in enumerate(lines) if line in titles), len(lines) - 1)
    return [*lines[:end], "    Args:", *listed, "", *lines[end:]]


def copied(public: Public, by_name: dict[str, Public]) -> tuple[Path, int, list[str], list[str]]:
    """Where the docstring is, its lines, and what they should be."""
    path, node = node_of(public.value)
    lines, texts = docstring_lines(public.value), {}
    for name, chosen in sources(public):
        described = entries(copied(by_name[name], by_name)[3])
        texts |= {n: t for n, t in described.items() if chosen is None or n in chosen}
    wanted = parameters(public.value)
    new = with_arguments(lines, wanted, texts) if texts else lines
    return path, node.body[0].lineno - 1, lines, new


def write() -> list[str]:
    """Bring every copy up to date; the names that were not."""
    by_name = {public.name: public for public in names()}
    changed = []
    for public in by_name.values():
        if not public.package.startswith("evalgrad."):
            continue
        path, start, before, after = copied(public, by_name)
        if before != after:
            lines = path.read_text().split("\n")
            lines[start : start + len(before)] = after
            path.write_text("\n".join(lines))
            changed.append(public.name)
    return changed


if __name__ == "__main__":
    print(", ".join(write()) or "every docstring is up to date")
