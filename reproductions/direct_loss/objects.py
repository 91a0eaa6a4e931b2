"""Photographs of CIFAR-10 pasted on views of the Earth, and boxes that may hold one: a stand-in for
the images of Pascal VOC and their selective search.
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.fetched.labelled import cifar10
from evalgrad_lab.data.fetched.mapped import earth
from reproductions.direct_loss.boxes import MATCH, Objects, overlaps
from reproductions.direct_loss.photographs import SIDE, features_of

CANVAS, MOST, SIDES = 64, 3, (12, 33)  # side of an image, its objects, their sides
BOXES, NEAR = 24, 4  # of an image, and among them near each object
SMALL, SEEN = 16, 0.5  # a smaller object is difficult, and one of which less is seen
NOTHING, IGNORED = 10, -1  # labels of boxes that show no object, or a difficult one


class Regions(NamedTuple):
    """Boxes of many images: their features and images, and the class that each shows."""

    features: Tensor
    boxes: Tensor
    image: Tensor
    label: Tensor

    def take(self, chosen: Tensor) -> "Regions":
        return Regions(*(part[chosen] for part in self))


def paste(canvas: Tensor, photographs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Put photographs on a canvas, in place, a later one over an earlier one: boxes, and whether
    each is difficult.
    """
    owner, boxes = torch.full((CANVAS, CANVAS), -1), []
    for number, photograph in enumerate(photographs):
        side = int(torch.randint(*SIDES, (), generator=generator))
        left, top = torch.randint(CANVAS - side + 1, (2,), generator=generator).tolist()
        rows, columns = slice(top, top + side), slice(left, left + side)
        small = F.interpolate(photograph[None], size=(side, side), mode="bilinear")[0]
        canvas[:, rows, columns], owner[rows, columns] = small, number
        boxes.append([left, top, left + side, top + side])
    found = torch.tensor(boxes, dtype=torch.float32)
    sides = found[:, 2] - found[:, 0]
    seen = torch.stack([(owner == number).sum() for number in range(len(boxes))]) / sides**2
    return found, (sides < SMALL) | (seen < SEEN)


def proposed(objects: Tensor, generator: torch.Generator) -> Tensor:
    """Boxes of one image: some near every object, the rest anywhere. Selective search looks at the
    image and finds most objects; these look at the objects.
    """
    near = objects.repeat(NEAR, 1)
    rest = BOXES - len(near)
    jitter = torch.rand(2, len(near), 2, generator=generator)
    side = (near[:, 2:] - near[:, :2]) * (0.75 + 0.6 * jitter[0])
    middle = (near[:, :2] + near[:, 2:]) / 2 + (jitter[1] - 0.5) * side / 2
    anywhere = CANVAS * torch.rand(rest, 2, generator=generator)
    any_side = torch.randint(*SIDES, (rest, 2), generator=generator)
    middles, sides = torch.cat([middle, anywhere]), torch.cat([side, any_side])
    return torch.cat([middles - sides / 2, middles + sides / 2], 1).clamp(0, CANVAS)


def crops(image: Tensor, boxes: Tensor) -> Tensor:
    """What each box shows, at the side that the network takes."""
    low, high = boxes[:, :2] / CANVAS, boxes[:, 2:] / CANVAS
    places = torch.cat([torch.diag_embed(high - low), (high + low - 1)[..., None]], 2)
    grid = F.affine_grid(places, [len(boxes), 3, SIDE, SIDE], align_corners=False)
    images = image.expand(len(boxes), -1, -1, -1)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def labels_of(boxes: Tensor, objects: Objects) -> Tensor:
    """The class of the object that a box shows best, or `NOTHING`, or `IGNORED`."""
    share, best = overlaps(boxes, objects.boxes).max(1)
    label = torch.where(objects.difficult, IGNORED, objects.label)[best]
    return torch.where(share >= MATCH, label, NOTHING)


def one_image(number: int, generator: torch.Generator) -> tuple[Regions, Objects]:
    """A view of the Earth with up to `MOST` photographs on it."""
    photographs, colours = _sources()

    def draw(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=generator)

    top, left = (int(draw(size - CANVAS)) for size in colours.shape[1:])
    canvas = colours[:, top : top + CANVAS, left : left + CANVAS].clone()
    chosen = draw(len(photographs[0]), 1 + int(draw(MOST)))
    boxes, difficult = paste(canvas, photographs[0][chosen], generator)
    place = torch.full((len(boxes),), number)
    there = Objects(boxes, place, photographs[1][chosen], difficult)
    around = proposed(boxes, generator)
    features = features_of(crops(canvas, around))
    label = labels_of(around, there)
    return Regions(features, around, torch.full((BOXES,), number), label), there


@cache
def _sources() -> tuple[tuple[Tensor, Tensor], Tensor]:
    part = cifar10()[1]
    return (part.inputs, part.target), earth()[0]


@cache
def pasted(count: int) -> tuple[Regions, Objects]:
    """So many images: their boxes with features, and their objects; a minute for 300."""
    generator = torch.Generator().manual_seed(0)
    regions, objects = zip(*(one_image(n, generator) for n in range(count)), strict=True)
    joined = (map(torch.cat, zip(*some, strict=True)) for some in (regions, objects))
    return Regions(*next(joined)), Objects(*next(joined))
