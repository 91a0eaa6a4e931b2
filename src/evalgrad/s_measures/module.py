"""What all S-measures share: their options, one solver per group (one-vs-rest), their methods."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NoReturn, TypedDict, cast

import torch
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._labels import transformed
from evalgrad._module import OptionsModule
from evalgrad._options import CHECKS, integer, number, one_of
from evalgrad.s_measures.batch import Batch, batches
from evalgrad.s_measures.diagnostics import diagnose, together
from evalgrad.s_measures.lagrangian import LagrangianSolver
from evalgrad.s_measures.layout import Average, Labels, members
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.ratio import RatioSolver
from evalgrad.s_measures.solver import Settings, Solver
from evalgrad.s_measures.surrogates import SURROGATES, SurrogateName

SolverName = Literal["ratio", "lagrangian"]


class Options(TypedDict, total=False):
    """The options of every measure; `Settings` says what the numbers are."""

    labels: Labels
    solver: SolverName
    surrogate: SurrogateName
    dual_lr: float
    max_multiplier: float
    momentum: float
    project_every: int
    augment: float
    average: Average | None
    ignore_index: int | None


DEFAULTS = {"solver": "ratio", "surrogate": "hinge", "average": None, "ignore_index": None} | {
    name: value for name, value in vars(Settings).items() if not name.startswith("_")
}
_above_zero = number(above=0, repair="Leave it out for the default.")
_FRACTION = "Pass a fraction, not a percentage."
_rate = number(above=0, below=1, repair=_FRACTION)
_step = number(at_least=0, none=True, repair="Leave it out for `dual_lr`.")
_lr = number(at_least=0, repair="Try 0.01.")
_share = number(above=0, at_most=1, repair=_FRACTION)


def _average(function: str, argument: str, value: object) -> None:
    if value is not None:
        one_of("macro", "micro", "pairwise")(function, argument, value)


MEASURE_CHECKS = CHECKS | {
    "recall": _share,
    "precision": _rate,
    "specificity": _rate,
    "max_fpr": _rate,
    "at_least": number(above=0, below=1, none=True, repair=_FRACTION),
    "solver": one_of("ratio", "lagrangian"),
    "surrogate": one_of(*SURROGATES),
    "average": _average,
    "dual_lr": _above_zero,
    "max_multiplier": _above_zero,
    "momentum": number(at_least=0, below=1, repair="Use 0 to use each batch alone."),
    "project_every": integer(1, repair="Use 1 to project at every call."),
    "augment": number(at_least=0, repair="Use 0 for the plain Lagrangian."),
}


class SMeasure(OptionsModule, Settings):
    """The base of the measures. A subclass names its `program` and the arguments of it."""

    program: ClassVar[Callable[..., Program]]
    solver: SolverName
    surrogate: SurrogateName

    def __init__(self, own: dict[str, Any], options: Options) -> None:
        name = type(self).__name__
        given = {**own, **DEFAULTS, **options}
        labels = given.pop("labels", None)
        unknown = given.keys() - own.keys() - DEFAULTS.keys()
        if unknown:
            known = ", ".join(["labels", *own, *DEFAULTS])
            raise TypeError(f"{name}: `{min(unknown)}` is not an option. The options are {known}.")
        super().__init__(name, MEASURE_CHECKS, given)
        program = type(self).program(**own)
        if self.solver == "lagrangian":
            _check_lagrangian(name, labels)
        kind: Any = {"ratio": RatioSolver, "lagrangian": LagrangianSolver}[self.solver]
        self._layout, groups = members(name, labels, self.average, self.ignore_index)
        loss = SURROGATES[self.surrogate]
        self.groups = nn.ModuleList(kind(program, known, loss) for known in groups)

    def __setattr__(self, key: str, value: Any) -> None:
        """Numbers of `Settings` may change during training; all else is built into the solvers."""
        options = vars(self).get("_options", ())  # none before the constructor has set them
        if key in options or (options and key == "labels"):
            name = type(self).__name__
            if not hasattr(Settings, key):
                got, repair = f"{describe(value)} later", f"Construct a new {name}({key}=...)."
                fail(ValueError, name, key, "set in the constructor", got, repair)
            MEASURE_CHECKS[key](name, key, value)
        super().__setattr__(key, value)

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        *,
        index: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The loss of one batch, a scalar; in training mode its scores also enter the totals of the
        data.

        Args:
            scores: logits of the shape of `target`, positive above 0; with p > 2 groups (*, p), one
                column per group. float16 and bfloat16 are computed and returned in float32.
            target: group of every item: bool, integer, or floating-point 0 and 1; (*, C) of C
                tasks. A batch that lacks positives or negatives adds a zero-gradient 0.
            index: position of every item in `labels`. Makes totals exact; needed by
                solver="lagrangian".
            mask: True where an item counts, the shape of `target`, or that of the items; what
                does not count is ignored.
        """
        solvers = self._solvers()
        found = batches(type(self).__name__, scores, target, index, mask, self._layout)
        self._check_batch(found[0])
        # `forward` itself: a small batch pays for every call
        values = [solver.forward(batch, self) for solver, batch in zip(solvers, found, strict=True)]
        return values[0] if len(values) == 1 else torch.stack(values).mean()  # macro average

    def project_(self) -> None:
        """Project tau and epsilon (solver="lagrangian") at every `project_every`-th call. Call it
        after each optimiser step.
        """
        for solver in self._solvers():
            solver.project_(self)

    def dual_step(self, lr: float | None = None) -> None:
        """Ascend in the multipliers, by `lr` or `dual_lr`. Call it each step or epoch for
        "lagrangian"; "ratio" does it itself.
        """
        _step("dual_step", "lr", lr)
        for solver in self._solvers():
            solver.dual_step(self, lr)

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """Parameter groups of the measure's own variables for a plain `torch.optim.SGD`; empty
        where there are none.
        """
        _lr("primal_groups", "lr", lr)  # SGD checks no `lr` of a group
        return [entry for solver in self._solvers() for entry in solver.primal_groups(lr)]

    def load_multipliers(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what was learned on other data, from the `state_dict()` of a measure with the
        same options: multipliers, thresholds and totals of batches, but no scores of items.

        For data that grew or were replaced: build a measure with the new labels, and a new
        optimiser for its `primal_groups`, where it has any.
        """
        if not isinstance(state_dict, Mapping):
            must, got = "the dict of a `state_dict()`", type(state_dict).__name__
            repair = "Pass `old.state_dict()` of the old measure."
            fail(TypeError, "load_multipliers", "state_dict", must, got, repair)
        given: dict[str, dict[str, Any]] = {}  # by group
        for key, value in state_dict.items():
            if key.startswith("groups."):
                _, place, name = key.split(".", 2)
                given.setdefault(place, {})[name] = value
        own = {str(place): solver for place, solver in enumerate(self._solvers())}
        # of all groups before anything changes
        if own.keys() != given.keys() or not all(own[c].multipliers_fit(given[c]) for c in own):
            _fail_multipliers(state_dict, len(given))
        for place, solver in own.items():
            solver.load_multipliers(given[place])

    def diagnostics(self) -> dict[str, Any]:
        """What the measure knows about the data seen so far, as plain numbers.

        `certificate` is a guaranteed lower bound of the measure on the cached scores and `metric`
        its exact value (without `index`, at the trained thresholds); `source` says whether totals
        come from the cache or a moving average. `residuals` (<= 0 is met) by hard counts,
        `surrogate_residuals`, `met` and `why` describe the constraints; `mu` and `dual_identity`
        (0 at an optimum) the multipliers. Before both classes have been seen the numbers are NaN
        and `met` is None. More than two groups: the macro averages, whether all are met and why
        not, and each group's report under `groups`.
        """
        reports = [diagnose(solver, self) for solver in self._solvers()]
        return reports[0] if len(reports) == 1 else together(reports)

    def _solvers(self) -> list[Solver]:
        """The solvers, in single precision at least: `half()` on a model reaches them too."""
        solvers = cast("list[Solver]", list(self.groups))
        if solvers[0].mu.dtype in (torch.float16, torch.bfloat16):
            for solver in solvers:
                solver.widen()
        return solvers

    def _check_batch(self, batch: Batch) -> None:
        name = type(self).__name__
        if batch.position is None and self.solver == "lagrangian":
            repair = "Let the dataset return positions."
            fail(ValueError, name, "index", "given with solver='lagrangian'", "None", repair)
        # What torch.func traces ends with its transform: it cannot enter the totals, and would
        # silently be missing there.
        if self.training and not torch.compiler.is_compiling() and transformed(batch.scores):
            must = "a plain tensor in training mode, where they enter the totals of the data"
            got = "one inside a torch.func transform"
            repair = "Call `eval()` on the measure there, and call it again outside in `train()`."
            fail(RuntimeError, name, "scores", must, got, repair)


def _fail_multipliers(state_dict: Mapping[str, Any], groups: int) -> NoReturn:
    repair = "Build both with the same options."
    inner = next((key for key in state_dict if ".groups.0." in key), None)
    if not groups and inner is not None:  # that of a model
        start = inner[: inner.index("groups.0.")]
        repair = (
            f"Pass those of the measure alone: `{{key.removeprefix({start!r}): value for key, value"
            f" in state_dict.items() if key.startswith({start!r})}}`."
        )
    must, got = "of a measure with the same options", f"other multipliers, of {groups} groups"
    fail(ValueError, "load_multipliers", "state_dict", must, got, repair)


def _check_lagrangian(name: str, labels: Labels) -> None:
    if labels is None:
        repair = "Pass the labels of the training set."
        fail(ValueError, name, "labels", "given with solver='lagrangian'", "None", repair)
