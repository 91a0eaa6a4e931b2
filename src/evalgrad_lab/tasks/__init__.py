"""The tasks by name: each says what is trained, on what, judged by what, and against which
baselines.
"""

import difflib
from collections.abc import Iterable

from evalgrad_lab.errors import UserError
from evalgrad_lab.tasks import circles, decisions, ranking, s_digits, segmentation, top_k
from evalgrad_lab.tasks.task import Task

ALL = (
    circles.CIRCLES,
    segmentation.DIGIT_SCENES,
    segmentation.STROKES,
    ranking.TEACHER_RANKING,
    ranking.HOPELESS_POSITIVES,
    ranking.NOISY_DIGITS,
    top_k.NOISY_LABELS,
    top_k.CLEAN_LABELS,
    decisions.TWO_MODE_AP,
    decisions.TWO_MODE_RECALL,
    decisions.TWO_MODE_F1,
    decisions.TABLE,
    decisions.TABLE_MLP,
    s_digits.S_DIGITS,
)
TASKS = {task.name: task for task in ALL}


def find(name: str) -> Task:
    """The task of that name."""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(TASKS)}."
        raise UserError(f"TASK must be one of the lab's tasks; got {name!r}. {hint}")
    return TASKS[name]


def called(names: Iterable[str]) -> list[Task]:
    """The tasks that these names stand for, each once: a task's own name, or the start that a
    family has in common.

    >>> [task.name for task in called(["two-mode", "circles"])]
    ['two-mode-ap', 'two-mode-recall', 'two-mode-f1', 'circles']
    """
    found = [task for name in names for task in _family(name) or [find(name)]]
    return list({task.name: task for task in found}.values())


def _family(name: str) -> list[Task]:
    """The tasks `name-...`; none if a task has that very name, as `digit-table` beside
    `digit-table-mlp`.
    """
    return (
        []
        if name in TASKS
        else [task for task in TASKS.values() if task.name.startswith(f"{name}-")]
    )
