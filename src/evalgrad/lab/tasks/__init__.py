"""The tasks by name: each says what is trained, on what, judged by what, and against which baselines."""

import difflib

from evalgrad.lab.errors import UserError
from evalgrad.lab.tasks import circles, decisions, ranking, s_digits, segmentation, top_k
from evalgrad.lab.tasks.task import Task

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
