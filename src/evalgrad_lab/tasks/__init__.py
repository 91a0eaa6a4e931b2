"""The built-in tasks by name: network, data, metrics and baselines."""

import difflib
from collections.abc import Iterable

from evalgrad_lab.errors import UserError
from evalgrad_lab.tasks import classification, ranking, segmentation
from evalgrad_lab.tasks.task import Task

ALL = (
    segmentation.CIRCLES,
    segmentation.DIGIT_SCENES,
    segmentation.STROKES,
    ranking.TEACHER_RANKING,
    ranking.HOPELESS_POSITIVES,
    ranking.NOISY_DIGITS,
    classification.NOISY_LABELS,
    classification.CLEAN_LABELS,
    ranking.TWO_MODE_AP,
    ranking.TWO_MODE_RECALL,
    ranking.TWO_MODE_F1,
    ranking.TABLE,
    ranking.TABLE_MLP,
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
    found: dict[str, Task] = {}
    for name in names:
        family = [task for task in TASKS.values() if task.name.startswith(f"{name}-")]
        # `digit-table` is a task, beside `digit-table-mlp`
        chosen = family if family and name not in TASKS else [find(name)]
        found |= {task.name: task for task in chosen}
    return list(found.values())
