"""Augmentation of one example by its own generator: the same example in the same epoch is always
changed in the same way.
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
    """
    dense = target.ndim > 0
    if mode == "full" and dense:
        image, target = _scale(image, target, 0.5 + float(torch.rand((), generator=generator)))
    elif mode == "full":
        corner = torch.randint(9, (2,), generator=generator).tolist()
        image = _cut(F.pad(image, (4, 4, 4, 4)), corner, image.shape[-2:])
    if crop is not None:
        image, target = _random_crop(image, target, generator, crop, void)
    if mode != "none" and torch.rand((), generator=generator) < 0.5:
        image, target = image.flip(-1), target.flip(-1) if dense else target
    return image, target


def _scale(image: Tensor, target: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    size = [max(round(factor * side), 1) for side in image.shape[-2:]]
    labels = F.interpolate(target[None, None].float(), size=size, mode="nearest")[0, 0]
    scaled = F.interpolate(image[None], size=size, mode="bilinear", antialias=factor < 1)[0]
    return scaled, labels.to(target.dtype)


def _random_crop(
    image: Tensor, target: Tensor, generator: torch.Generator, crop: int, void: int
) -> tuple[Tensor, Tensor]:
    """A square at random; an image that is too small is padded by 0, its label map by `void`."""
    height, width = image.shape[-2:]
    border = (0, max(crop - width, 0), 0, max(crop - height, 0))
    image, room = F.pad(image, border), []
    for side in image.shape[-2:]:
        room.append(int(torch.randint(side - crop + 1, (), generator=generator)))
    if target.ndim:
        target = _cut(F.pad(target, border, value=void), room, (crop, crop))
    return _cut(image, room, (crop, crop)), target


def _cut(values: Tensor, corner: list[int], size: tuple[int, ...]) -> Tensor:
    top, left = corner
    return values[..., top : top + size[0], left : left + size[1]]
