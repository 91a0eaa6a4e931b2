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


def suppressed(boxes: Tensor, scores: Tensor) -> list[int]:
    """The boxes of one image that stay, best first: each suppresses those that it covers."""
    near = (overlaps(boxes, boxes) > SUPPRESS).tolist()
    kept: list[int] = []
    for at in scores.argsort(descending=True).tolist():
        if not any(near[at][other] for other in kept):
            kept.append(at)
    return kept


def hits(boxes: Tensor, image: Tensor, objects: Objects) -> list[bool | None]:
    """Of ranked detections of one class, best first, whether each finds an object of it: the first
    one that does counts, a second one is an error. None for a difficult object: it is ignored.
    """
    found, taken = [], set()
    for box, number in zip(boxes, image, strict=True):
        there = torch.nonzero(objects.image == number)[:, 0]
        shares = overlaps(box[None], objects.boxes[there])[0]
        best = int(shares.argmax()) if len(there) else 0
        if not len(there) or shares[best] < MATCH:
            found.append(False)
            continue
        which = int(there[best])
        found.append(None if objects.difficult[which] else which not in taken)
        taken.add(which)
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


def class_precision(
    boxes: Tensor, image: Tensor, scores: Tensor, objects: Objects
) -> dict[str, float]:
    """AP of one class, given the scores of all boxes and the objects of the class."""
    kept = []
    for number in image.unique():
        there = torch.nonzero(image == number)[:, 0]
        kept += there[suppressed(boxes[there], scores[there])].tolist()
    ranked = torch.tensor(kept)[scores[kept].argsort(descending=True)]
    found = hits(boxes[ranked], image[ranked], objects)
    return average_precision(found, int((~objects.difficult).sum()))
