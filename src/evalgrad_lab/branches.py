"""Trains the second branch of `--loss auto` from the fork, compares it with the first on validation
data and keeps the better one. `recipe` defines what is trained and how the branch is chosen.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from evalgrad_lab import checkpoints
from evalgrad_lab.collapse import Collapse
from evalgrad_lab.fit import Hook, Training, fit
from evalgrad_lab.measures import finite
from evalgrad_lab.ready import Ready
from evalgrad_lab.recipe import (
    FALLEN,
    Fork,
    better_by,
    branch_steps,
    groups_of,
)
from evalgrad_lab.validation import Validation

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Weights = dict[str, Tensor]
Watch = Callable[[Validation], list[Hook]]  # more hooks of the second branch, such as its log


def take_better(
    ready: Ready, training: Training, fork: Fork, folder: Path | None, watch: Watch
) -> dict[str, Any]:
    """Train the second branch and give `training`, whose first one is finished, the weights of the
    better of the two; what was done, and why in sentences.
    """
    story = _better(ready, training, fork, folder, watch)
    return {**story, "why": f"{story['why']}{_weighted(ready)}"}


def _weighted(ready: Ready) -> str:
    """Why there are class weights that the user has not asked for."""
    assert ready.recipe is not None
    power = ready.recipe.first_options.get("weight_power")
    if power is None or "weight_power" in ready.options.loss_options:
        return ""
    return (
        f" Class weights (frequency to the power -{power:g}): some classes are rare, and"
        f" {ready.metric.name} is a mean over classes."
    )


def _better(
    ready: Ready, training: Training, fork: Fork, folder: Path | None, watch: Watch
) -> dict[str, Any]:
    """Both branches, of which `training` gets the better one."""
    recipe = ready.recipe
    assert recipe is not None
    length = branch_steps(training.step, training.steps, bool(fork.weights))
    if recipe.second is None or length < 1:
        because = recipe.why or "one step leaves no room for a second branch"
        why = f"--loss auto trained on {recipe.first} alone: {because}."
        return {"chosen": recipe.first, "taken": False, "why": why}
    start, lengths, notes = fork.weights or _weights(training), list[int](), ""
    least = FALLEN * ready.decision(training)[1]
    for attempt, share in enumerate(recipe.shares):
        path = None if folder is None else folder / f"branch{attempt}.ckpt"
        other, collapse = _trained(
            ready.branch(attempt, length), start, training.fabric, path, watch, least
        )
        lengths.append(other.step)
        training.seconds += other.seconds
        if not collapse.why:
            break
        notes += f" With {share:g} of {recipe.second} a branch collapsed: {collapse.why}."
    notes += _cost(lengths, training.step)
    story = {
        "chosen": recipe.first,
        "taken": False,
        "share": share,
        "more_steps": sum(lengths) / training.step,
        "fork_epoch": training.epoch * (fork.taken_at / training.step if fork.weights else 1.0),
    }
    if collapse.why:
        return {**story, "why": f"--loss auto kept {recipe.first}.{notes}"}
    what = f"{1 - share:g} {recipe.first} + {share:g} {recipe.second}"
    return {**story, **_chosen(ready, training, other, what, notes)}


def _cost(lengths: list[int], steps: int) -> str:
    """The steps of the second branch, and of its repeat, beside those of the first."""
    again = " and its repeat" * (len(lengths) > 1)
    more = sum(lengths)
    taken = f"{more} more step{'s' * (more != 1)} ({100 * more / steps:.0f} %)"
    return f" The second branch{again} took {taken}."


def _chosen(
    ready: Ready, training: Training, other: Training, what: str, notes: str
) -> dict[str, Any]:
    """The better of two branches by validation, each decided as is best for it."""
    assert ready.recipe is not None
    first, second = (ready.rows(one) for one in (training, other))
    lists = None if ready.data.validation.lists is None else first[:, -1]
    groups = groups_of(first, lists)
    by, error = better_by(lambda rows: finite(ready.measure.value(rows)), first, second, groups)
    said = f"{100 * by:+.2f} points on validation, standard error {100 * error:.2f}"
    story = {"difference": by, "standard_error": error}
    if by > error:
        training.network.load_state_dict(other.network.state_dict())
        why = f"--loss auto took the branch with {what}: {said}.{notes}"
        return {**story, "chosen": what, "taken": True, "why": why}
    why = f"--loss auto kept {ready.recipe.first}; the branch with {what} has {said}.{notes}"
    return {**story, "why": why}


def _trained(
    branch: Ready,
    start: Weights,
    fabric: "Fabric",
    checkpoint: Path | None,
    watch: Watch,
    least: float,
) -> tuple[Training, Collapse]:
    """The second branch at its best look, and whether it collapsed."""
    other = branch.training(fabric)
    other.network.load_state_dict(start)
    validation = branch.validation(other)
    end = "" if checkpoint is None else "This branch ends."  # a comparison does not say so
    collapse = Collapse(validation, stops=True, least=least, repair=end)
    batches, following = branch.feed(fabric)
    hooks: list[Hook] = [validation, collapse, *following, *watch(validation)]
    if checkpoint is not None and checkpoint.exists():
        state = checkpoints.read(checkpoint, "Remove it; the same command trains the branch again.")
        checkpoints.resume(other, hooks, state)
    fit(other, batches, hooks, checkpoint)
    validation.restore_best(other)
    return other, collapse


def _weights(training: Training) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in training.network.state_dict().items()}
