"""Detection as Pascal VOC judges it: overlaps of boxes, suppression, AP of a ranked list. Boxes are
(n, 4): left, top, right and bottom.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MATCH = 0.5  # the overlap from which on a box shows an object
SUPPRESS = 0.3  # that above which a box with a lower score is suppressed, as in R-CNN


class Objects(NamedTuple):
    """What is on the images: boxes, the image of each, its class, and whether it is difficult."""

    boxes: Tensor
    image: Tensor
    label: Tensor
    difficult: Tensor

    def take(self, chosen: Tensor) -> "Objects":
        return Objects(*(part[chosen] for part in self))


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of each with each."""
    first, second = boxes[:, None], others[None]
    low, high = torch.maximum(first, second)[..., :2], torch.minimum(first, second)[..., 2:]
    both = (high - low).clamp_min(0).prod(-1)
    areas = [(some[..., 2:] - some[..., :2]).prod(-1) for some in (first, second)]
    return both / (areas[0] + areas[1] - both)


def suppressed(near: list[list[bool]], scores: Tensor) -> list[int]:
    """The boxes of one image that stay, best first: each suppresses those that it is near to."""
    kept: list[int] = []
    for at in scores.argsort(descending=True).tolist():
        if not any(near[at][other] for other in kept):
            kept.append(at)
    return kept


def detections(boxes: Tensor, image: Tensor, scores: Tensor) -> list[Tensor]:
    """For each row of scores (classes, n) the boxes that stay of all images, best first."""
    kept: list[list[int]] = [[] for _ in scores]
    for number in image.unique():
        there = torch.nonzero(image == number)[:, 0]
        near = (overlaps(boxes[there], boxes[there]) > SUPPRESS).tolist()
        for row, some in zip(scores, kept, strict=True):
            some += there[suppressed(near, row[there])].tolist()
    pairs = zip(scores, map(torch.tensor, kept), strict=True)
    return [some[row[some].argsort(descending=True)] for row, some in pairs]


def hits(boxes: Tensor, image: Tensor, objects: Objects) -> list[bool | None]:
    """Of ranked detections of one class, best first, whether each finds an object of it: the first
    one that does counts, a second one is an error. None for a difficult object: it is ignored.
    """
    if not len(objects.boxes):
        return [False] * len(boxes)
    same = image[:, None] == objects.image
    share, best = torch.where(same, overlaps(boxes, objects.boxes), 0.0).max(1)
    found: list[bool | None] = []
    taken: set[int] = set()
    for enough, which in zip((share >= MATCH).tolist(), best.tolist(), strict=True):
        ignored = enough and bool(objects.difficult[which])
        found.append(None if ignored else enough and which not in taken)
        taken |= {which} if enough else set()
    return found


def average_precision(found: list[bool | None], positives: int) -> dict[str, float]:
    """In per cent, by area (VOC from 2010 on) and at eleven recalls (before): the precision at a
    recall is the largest at that or a higher one.
    """
    right = torch.tensor([hit for hit in found if hit is not None], dtype=torch.float64)
    if not len(right) or not positives:
        return {"area": 0.0, "11-point": 0.0}
    hit = right.cumsum(0)
    recall, precision = hit / positives, hit / torch.arange(1, len(right) + 1)
    best = precision.flip(0).cummax(0).values.flip(0)
    reached = recall >= torch.linspace(0, 1, 11, dtype=torch.float64)[:, None] - 1e-9
    points = torch.where(reached, best, 0.0).amax(1)
    return {
        "area": 100 * (best * right).sum().item() / positives,
        "11-point": 100 * points.mean().item(),
    }
