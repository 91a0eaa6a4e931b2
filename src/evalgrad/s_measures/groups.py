"""What all S-measures share: one solver per group (one-vs-rest), the checks of a batch, and the
methods of the modules.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict, cast

import torch
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, plain
from evalgrad._labels import readable
from evalgrad._options import number, one_of
from evalgrad.s_measures.diagnostics import Solver, diagnose
from evalgrad.s_measures.lagrangian import LagrangianSolver
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.ratio import RatioSolver
from evalgrad.s_measures.surrogates import SURROGATES

Labels = Tensor | Sequence[int] | None


class Options(TypedDict, total=False):
    """Numbers a user rarely touches; the same for all measures."""

    dual_lr: float  # step of the multipliers
    max_multiplier: float  # cap of the multipliers of inequality constraints
    momentum: float  # of the moving average, when no `index` is given
    project_every: int  # lagrangian: `project_()` works at every such call
    augment: float  # lagrangian: penalty of the augmented Lagrangian, 0 for the paper's plain one


class Measure(Protocol):
    """What the methods below need of a module."""

    groups: nn.ModuleList
    options: dict[str, Any]
    training: bool


DEFAULTS: Options = {
    "dual_lr": 0.2,
    "max_multiplier": 100.0,
    "momentum": 0.9,
    "project_every": 1,
    "augment": 5.0,
}


def build(
    name: str, program: Program, labels: Labels, solver: str, surrogate: str, options: Options
) -> nn.ModuleList:
    """One solver per group: the positives alone for two groups, one-vs-rest for more."""
    one_of("ratio", "lagrangian")(name, "solver", solver)
    one_of(*tuple(SURROGATES))(name, "surrogate", surrogate)
    chosen = _checked(name, options)
    loss, groups = SURROGATES[surrogate], _one_vs_rest(name, labels)
    common: dict[str, Any] = {key: chosen[key] for key in ("dual_lr", "max_multiplier")}
    if solver == "ratio":
        return nn.ModuleList(
            RatioSolver(program, g, loss, momentum=chosen["momentum"], **common) for g in groups
        )
    if labels is None:
        repair = "Pass the labels of the training set."
        fail(ValueError, name, "labels", "given with solver='lagrangian'", "None", repair)
    if program.required:
        fail(
            ValueError,
            name,
            "at_least",
            "used with solver='ratio'",
            "'lagrangian'",
            "Leave `solver` out.",
        )
    common |= {key: chosen[key] for key in ("project_every", "augment")}
    return nn.ModuleList(
        LagrangianSolver(program, g, loss, **common) for g in groups if g is not None
    )


def forward(
    self: Measure, scores: Tensor, target: Tensor, *, index: Tensor | None = None
) -> Tensor:
    """The loss of one batch, a scalar; in training mode its scores also enter the totals of the
    data.

    Args:
        scores: logits of the shape of `target`, positive above 0; with p > 2 groups (*, p), one
            column per group.
        target: group of every item, bool or integer; a batch that lacks positives or negatives adds
            a zero-gradient 0.
        index: position of every item in `labels`. Makes totals exact; needed by
            solver="lagrangian".
    """
    solvers = _solvers(self)
    count = len(solvers)
    _check_batch(type(self).__name__, solvers[0], count, scores, target, index)
    if self.training:
        _check_transform(type(self).__name__, scores)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if target.ndim != 1:
        wide, target = wide.reshape(target.numel(), *scores.shape[target.ndim :]), target.flatten()
        index = None if index is None else index.flatten()
    if count == 1:
        value = solvers[0](wide, target if target.dtype == torch.bool else target == 1, index)
        return value if wide is scores else value.to(scores.dtype)
    values = [
        solver(column, target == c, index)
        for c, (solver, column) in enumerate(zip(solvers, wide.unbind(-1), strict=True))
    ]
    return torch.stack(values).mean().to(scores.dtype)  # macro average


def project_(self: Measure) -> None:
    """Project tau and epsilon (solver="lagrangian") at every `project_every`-th call. Call it after
    each optimiser step.
    """
    for group in _solvers(self):
        group.project_()


def dual_step(self: Measure, lr: float | None = None) -> None:
    """Ascend in the multipliers, by `lr` or `dual_lr`. Call it each step or epoch for "lagrangian";
    "ratio" does it itself.
    """
    for group in _solvers(self):
        group.dual_step(lr)


def primal_groups(self: Measure, lr: float) -> list[dict[str, Any]]:
    """Parameter groups of the measure's own variables for a plain `torch.optim.SGD`; empty where
    there are none.
    """
    return [entry for group in _solvers(self) for entry in group.primal_groups(lr)]


def diagnostics(self: Measure) -> dict[str, Any]:
    """What the measure knows about the data seen so far, as plain numbers.

    `certificate` is a guaranteed lower bound of the measure on the cached scores and `metric` its
    exact value; `source` says whether totals come from the cache or a moving average; `residuals`
    (<= 0 is met), `met` and `why` describe the constraints; `mu` and `dual_identity` (0 at an
    optimum) the multipliers. More than two groups: the macro averages, and each group's own report
    under `groups`.
    """
    reports = [diagnose(group) for group in _solvers(self)]
    if len(reports) == 1:
        return reports[0]
    average = {
        key: sum(r[key] for r in reports) / len(reports)
        for key in ("certificate", "metric", "at_threshold")
    }
    return {**average, "groups": reports}


def extra_repr(self: Measure) -> str:
    """The options of the measure, those that are not set left out."""
    return ", ".join(f"{key}={value!r}" for key, value in self.options.items() if value is not None)


def _solvers(self: Measure) -> list[Solver]:
    return cast("list[Solver]", list(self.groups))


def _one_vs_rest(name: str, labels: Labels) -> list[Tensor | None]:
    if labels is None:
        return [None]
    given = torch.as_tensor(labels).reshape(-1)
    if given.is_floating_point() or given.is_complex():
        fail(
            TypeError,
            name,
            "labels",
            "bool or integer",
            describe(given),
            "Use `labels.long()`.",
        )
    count = int(given.max()) + 1 if len(given) else 0
    wanted = [1] if count <= 2 else list(range(count))
    groups: list[Tensor | None] = []
    for c in wanted:
        member = given == c
        if not member.any() or member.all() or (given < 0).any():
            raise ValueError(
                f"{name}: `labels` must hold groups 0, 1, ..., each with members; got"
                f" {int(member.sum())} items of group {c} among {len(given)}. A measure without"
                " positives or negatives is undefined: pass the labels of the whole training set."
            )
        groups.append(member)
    return groups


def _check_batch(
    name: str, first: Solver, count: int, scores: Tensor, target: Tensor, index: Tensor | None
) -> None:
    floating(name, "scores", scores)
    if plain(name, "target", target).is_floating_point():
        must, repair = "an integer or bool tensor of labels", "Use `target.long()`."
        fail(TypeError, name, "target", must, describe(target), repair)
    expected = target.shape if count == 1 else (*target.shape, count)
    if scores.shape != expected:
        raise ValueError(
            f"{name}: `scores` must have shape {tuple(expected)}, that of `target` and a column for"
            f" each of more than two groups; got {tuple(scores.shape)}. Squeeze a last axis of one"
            " column."
        )
    if index is None and isinstance(first, LagrangianSolver):
        repair = "Let the dataset return positions."
        fail(ValueError, name, "index", "given with solver='lagrangian'", "None", repair)
    if index is not None and (
        len(first.counts.labels) == 0 or index.dtype != torch.int64 or index.shape != target.shape
    ):
        raise ValueError(
            f"{name}: `index` must be int64 of the shape of `target` and needs `labels`; got"
            f" {index.dtype} {tuple(index.shape)} with {len(first.counts.labels)} labels. Give"
            " `labels=` to the constructor."
        )
    if target.dtype != torch.bool and readable(target) and target.numel():
        low, high = map(int, target.aminmax())
        if low < 0 or high >= max(count, 2):
            must, got = f"in 0..{max(count, 2) - 1}", str(low if low < 0 else high)
            fail(ValueError, name, "target", must, got, "Filter ignored items out first.")


def _check_transform(name: str, scores: Tensor) -> None:
    """What torch.func traces ends with its transform: it cannot enter the totals, and would
    silently be missing there.
    """
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(
        scores
    ):
        fail(
            RuntimeError,
            name,
            "scores",
            "a plain tensor in training mode, where they enter the totals of the data",
            "one inside a torch.func transform",
            "Put the measure in `eval()` there, and call it once more outside in `train()`.",
        )


def _checked(name: str, options: Options) -> Options:
    unknown = set(options) - set(DEFAULTS)
    if unknown:
        raise TypeError(
            f"{name}: `{min(unknown)}` is not an option; got {sorted(options)}. The options are"
            f" {sorted(DEFAULTS)}."
        )
    chosen: Options = {**DEFAULTS, **options}
    for key in ("dual_lr", "max_multiplier", "project_every"):
        number(above=0, repair="Leave it out for the default.")(name, key, chosen[key])
    if not 0 <= chosen["momentum"] < 1:
        repair = "Use 0 to trust each batch alone."
        fail(ValueError, name, "momentum", "in [0, 1)", repr(chosen["momentum"]), repair)
    number(at_least=0, repair="Use 0 for the plain Lagrangian.")(name, "augment", chosen["augment"])
    return chosen
