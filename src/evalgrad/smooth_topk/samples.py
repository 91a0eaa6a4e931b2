"""What the two top-k losses share: their options, samples as rows, and how much each row counts.

An operator takes rows ``(R, C)`` of scores, their labels and the *factor* of each row in the
result: the weight of its class, over the total under "mean", and 0 for a row that does not count,
whatever it holds. So the gradient leaves the operator finished.
"""

import torch
from torch import Tensor

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import valid_mask, working_dtype


def check_temperature(function: str, temperature: float) -> None:
    """A finite number above 0."""
    _checks.check_number(
        function,
        "temperature",
        temperature,
        above=0,
        repair="1.0 is smooth, 0.1 close to top-k error.",
    )


def check_options(
    function: str, k: int, margin: float, ignore_index: int | None, reduction: str
) -> None:
    """Options that can be wrong before there is a tensor."""
    _checks.check_integer(
        function,
        "k",
        k,
        low=1,
        repair="k is the number of guesses allowed; 1 is ordinary classification.",
    )
    _checks.check_number(
        function, "margin", margin, at_least=0, repair="The paper uses 1; 0 leaves the margin out."
    )
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)


def check_tensors(
    function: str,
    scores: Tensor,
    target: Tensor,
    k: int,
    ignore_index: int | None,
    weight: Tensor | None,
) -> None:
    """Scores and labels of one shape, labels and k within the classes."""
    _checks.check_floating(function, "scores", scores, at_least=2)
    classes = scores.shape[1]
    if classes < 2:
        repair = "Put the classes on axis 1; one class leaves nothing to rank."
        _checks.fail(
            ValueError,
            function,
            "scores",
            "(N, C, *) with C >= 2",
            _checks.describe(scores),
            repair,
        )
    repair = f"With {classes} classes on axis 1, {classes} guesses are always right: lower k."
    _checks.check_integer(function, "k", k, low=1, high=classes - 1, repair=repair)
    _checks.check_target(function, target, scores, (scores.shape[0], *scores.shape[2:]))
    _checks.check_labels(function, target, classes, valid_mask(target, ignore_index))
    _checks.check_weight(function, weight, classes, scores)


def rows_of(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Canonical form: scores ``(R, C)`` and int64 labels ``(R,)``, one row per sample."""
    if scores.ndim == 2:
        return scores, target.long()
    return (
        scores.movedim(1, -1).reshape(target.numel(), scores.shape[1]),
        target.reshape(target.numel()).long(),
    )


def row_factor(
    scores: Tensor, label: Tensor, ignore_index: int | None, weight: Tensor | None, reduction: str
) -> Tensor:
    """Factor of every row in the result, in the dtype that the rows are computed in."""
    if weight is None and ignore_index is None:
        factor = torch.ones_like(label, dtype=working_dtype(scores))
        return factor / label.numel() if reduction == "mean" else factor
    weights = torch.ones_like(label, dtype=torch.float64)
    if weight is not None:
        weights = weight.double()[label.clamp(0, scores.shape[1] - 1)]
    mask = valid_mask(label, ignore_index)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    if reduction == "mean":
        total = weights.sum()
        weights = weights / torch.where(total > 0, total, 1.0)
    return weights.to(working_dtype(scores))


def attach(rows: Tensor, value: Tensor, gradient: Tensor, target: Tensor, reduction: str) -> Tensor:
    """The reduced loss, differentiable in the rows; "none" has the shape of `target`."""
    if reduction == "none":
        return with_gradient(rows, value, gradient).reshape(target.shape).to(rows.dtype)
    return with_gradient(rows, value.sum(), gradient).to(rows.dtype)


def lead_of(kth: Tensor, own: Tensor) -> Tensor:
    """s_[k] - s_y. Both at +inf count as tied; both at -inf, where nothing is left to compare, give
    NaN as cross-entropy does.
    """
    return torch.where((kth == own) & (kth > 0), 0, kth - own)


def mark_rows(
    x: Tensor, label: Tensor, factor: Tensor, value: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows that do not count hold 0. NaN marks rows with a NaN or, which only eager mode on CPU can
    refuse, an impossible label.
    """
    broken = x.isnan().any(-1) | (label < 0) | (label >= x.shape[1])
    absent = factor == 0
    value = value.masked_fill(broken, torch.nan).masked_fill(absent, 0.0)
    return value, gradient.masked_fill(broken.unsqueeze(-1), torch.nan).masked_fill(
        absent.unsqueeze(-1), 0.0
    )
