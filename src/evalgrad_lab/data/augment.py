"""Augmentation of one example with its own generator, so that the same position in the same epoch
is always augmented in the same way.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def augment(
    image: Tensor,
    target: Tensor,
    generator: torch.Generator,
    mode: str,
    crop: int | None,
    void: int,
    due: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Change an image (channels, H, W) and, if it is a label map, its target alike.

    Args:
        image: values in [0, 1].
        target: class, or label map (H, W).
        generator: what the chances are drawn from.
        mode: "flip" mirrors half of the images; "full" also scales label maps and their images by
            0.5 to 1.5 (loss max-pooling), or moves an image that has a class by up to 4 pixels
            (smooth top-k).
        crop: side of the square to cut out, None for the whole image.
        void: label of what lies beyond the border of the image.
        due: class of the label map that the square has; an image that would lose its last pixel of
            the class by scaling is not scaled.
    """
    dense = target.ndim > 0
    if mode == "full" and dense:
        scaled = _scale(image, target, 0.5 + float(torch.rand((), generator=generator)))
        if due is None or bool((scaled[1] == due).any()):
            image, target = scaled
    elif mode == "full":
        corner = torch.randint(9, (2,), generator=generator).tolist()
        image = _cut(F.pad(image, (4, 4, 4, 4)), corner, image.shape[-2:])
    if crop is not None:
        image, target = _random_crop(image, target, generator, crop, void, due)
    if mode != "none" and torch.rand((), generator=generator) < 0.5:
        image, target = image.flip(-1), target.flip(-1) if dense else target
    return image, target


def _scale(image: Tensor, target: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    size = [max(round(factor * side), 1) for side in image.shape[-2:]]
    labels = F.interpolate(target[None, None].float(), size=size, mode="nearest")[0, 0]
    scaled = F.interpolate(image[None], size=size, mode="bilinear", antialias=factor < 1)[0]
    return scaled, labels.to(target.dtype)


def _random_crop(
    image: Tensor,
    target: Tensor,
    generator: torch.Generator,
    crop: int,
    void: int,
    due: int | None,
) -> tuple[Tensor, Tensor]:
    """A square at random, of those with a random pixel of the class that is `due`; an image that is
    too small is padded by 0, its label map by `void`.
    """
    height, width = image.shape[-2:]
    border = (0, max(crop - width, 0), 0, max(crop - height, 0))
    image, corner = F.pad(image, border), []
    pixels = (target == due).nonzero() if due is not None else target.new_empty(0, 2)
    pixel = None
    if len(pixels):
        pixel = pixels[torch.randint(len(pixels), (), generator=generator)].tolist()
    for axis, side in enumerate(image.shape[-2:]):
        first, last = 0, side - crop
        if pixel is not None:
            first, last = max(first, pixel[axis] - crop + 1), min(last, pixel[axis])
        corner.append(first + int(torch.randint(last - first + 1, (), generator=generator)))
    if target.ndim:
        target = _cut(F.pad(target, border, value=void), corner, (crop, crop))
    return _cut(image, corner, (crop, crop)), target


def _cut(values: Tensor, corner: list[int], size: tuple[int, ...]) -> Tensor:
    top, left = corner
    return values[..., top : top + size[0], left : left + size[1]]
