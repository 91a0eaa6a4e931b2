"""What the page of a run shows of predicted classes and labels: some images with theirs, or the
most certain mistakes in a table.
"""

from typing import Any

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.decisions import Decision
from evalgrad_lab.fit import Training
from evalgrad_lab.ready import Ready
from evalgrad_lab.trials import small

COUNT = 8


def guesses_of(
    ready: Ready, training: Training, part: Examples, decision: Decision | None
) -> list[dict[str, Any]]:
    """Up to `COUNT` examples, each with what is true, what is predicted and its probability.
    Nothing for label maps, which have pictures of their own, and where nothing decides.
    """
    if ready.options.task == "segmentation" or decision is None:
        return []
    images = part.inputs[0].ndim > 1
    count = min(COUNT, len(part))
    if images:  # evenly spaced, because files are in the order of their classes
        part = part.take([i * len(part) // count for i in range(count)])
    pairs = [(some, true) for some, true, _ in ready.scored(training, part, alone=True)]
    scores, target = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
    labels = decision(scores)
    probability, margin = certainty(scores, labels, decision)
    chosen = (labels != target).nonzero()
    chosen = chosen[margin[labels != target].argsort(descending=True)[:COUNT]]
    if images and target.ndim == 1:
        chosen = torch.arange(len(part))[:, None]
    found = []
    for at in map(tuple, chosen.tolist()):
        row = {
            "example": part.names[at[0]] if part.names else str(at[0]),
            **_named(ready, at, int(target[at]), int(labels[at])),
            "probability": float(probability[at]),
        }
        found.append({**row, "image": small(part.inputs[at[0]]).tolist()} if images else row)
    return found


def certainty(scores: Tensor, labels: Tensor, decision: Decision) -> tuple[Tensor, Tensor]:
    """The probability of each label that was predicted, and how certain it is: that probability, or
    the distance of one score to its threshold.
    """
    if scores.ndim > labels.ndim:
        chances = scores.softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
        return chances, chances
    distance = (scores - torch.tensor(decision.numbers or 0.0)).abs()
    return torch.where(labels == 1, scores, -scores).sigmoid(), distance


def _named(ready: Ready, at: tuple[int, ...], true: int, predicted: int) -> dict[str, str]:
    """The classes by their names; of several labels the label, and whether it holds."""
    names = ready.data.classes
    if len(at) == 1:
        return {"true": names[true], "predicted": names[predicted]}
    return {"label": names[at[1]], "true": str(true), "predicted": str(predicted)}
