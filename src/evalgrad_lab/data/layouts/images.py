"""Examples made of image files, shared by all layouts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.dataset import Column, Examples, Known
from evalgrad_lab.data.files.folders import open_image, read_image, read_mask
from evalgrad_lab.errors import UserError

IGNORE = 255  # pixels that no class has, in every layout here
# of ImageNet's colours, by which the papers normalise
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PADDING = 16  # pixels around a region on each side, as far as the image goes
ReadMask = Callable[[Path], Tensor]


def existing(path: Path, what: str) -> Path:
    """`path`, or a sentence that says what should be there."""
    if not path.exists():
        raise UserError(
            f"{path} is missing: it must hold {what}. Point --data to the folder in its official"
            " layout."
        )
    return path


def found(paths: Iterable[Path], folder: Path, what: str) -> list[Path]:
    """The paths in order, or a sentence if there is none."""
    ordered = sorted(paths)
    if not ordered:
        raise UserError(
            f"{folder} holds no {what}. Point --data to the folder in its official layout."
        )
    return ordered


def images_and_masks(pairs: Sequence[tuple[Path, Path]], read: ReadMask = read_mask) -> Examples:
    """Colours and classes of each pair of files."""
    for image, mask in pairs:
        existing(image, f"the image of {mask.name}")
        existing(mask, f"the mask of {image.name}")
    target = Column(list(pairs), partial(_mask, read=read))
    return _examples([image for image, _ in pairs], target)


def labelled_images(files: Sequence[tuple[Path, int]]) -> Examples:
    """Colours and the class of each file."""
    return _examples([path for path, _ in files], torch.tensor([label for _, label in files]))


def images_in_memory(images: Tensor, target: Tensor, split: str) -> Examples:
    """Bytes (N, 3, H, W) become 0..1 as they are asked for; normalised by their own colours."""
    names = [f"{split} {i}" for i in range(len(images))]
    colours = [torch.std_mean(images[:, c].float() / 255) for c in range(images.shape[1])]
    std, mean = ([float(pair[i]) for pair in colours] for i in (0, 1))
    known = Known(mean, [one or 1.0 for one in std], same_size=True)
    return Examples(Column(list(images), _scaled), target, names, known=known)


def regions(files: Sequence[tuple[Path, Tensor]], target: Tensor) -> Examples:
    """Every box with its surroundings; left, top, right, bottom, inclusive and from 1."""
    items = [(path, box) for path, boxes in files for box in boxes.int().tolist()]
    names = [f"{path.stem} {box}" for path, box in items]
    numbers = {path: number for number, (path, _) in enumerate(files)}
    sources = [numbers[path] for path, _ in items]
    known = Known(MEAN, DEVIATION)
    return Examples(Column(items, _region), target, names, known=known, sources=sources)


def resized(examples: Examples, size: int | Sequence[int]) -> Examples:
    """Of a height and width, or with `size` pixels on the smaller side; labels are not mixed."""
    inputs, target = examples.inputs, examples.target
    if isinstance(inputs, Column):
        inputs = Column(inputs.items, partial(_resize, read=inputs.read, size=size))
    if isinstance(target, Column):
        target = Column(target.items, partial(_resize, read=target.read, size=size))
    known = Known(MEAN, DEVIATION, same_size=not isinstance(size, int))
    return replace(examples, inputs=inputs, target=target, known=known)


def _resize(item: Any, read: Callable[[Any], Tensor], size: int | Sequence[int]) -> Tensor:
    image = read(item)
    if isinstance(size, int):
        scale = size / min(image.shape[-2:])
        size = [round(side * scale) for side in image.shape[-2:]]
    if image.ndim == 2:
        labels = F.interpolate(image[None, None].float(), size=list(size), mode="nearest")
        return labels[0, 0].to(image.dtype)
    return F.interpolate(image[None], size=list(size), mode="bilinear", antialias=True)[0]


def _examples(files: list[Path], target: Tensor | Column) -> Examples:
    inputs = Column(list(files), partial(read_image, grey=False))
    return Examples(inputs, target, [file.stem for file in files], known=Known(MEAN, DEVIATION))


def _mask(pair: tuple[Path, Path], read: ReadMask) -> Tensor:
    image, mask = pair
    classes, (width, height) = read(mask), open_image(image, decode=False).size
    if classes.shape != (height, width):
        raise UserError(
            f"{mask} must be of the size of {image}; got {tuple(classes.shape)} and"
            f" {(height, width)}."
        )
    return classes


def _region(item: tuple[Path, list[int]]) -> Tensor:
    path, (left, top, right, bottom) = item
    rows, columns = (
        slice(max(first - 1 - PADDING, 0), last + PADDING)
        for first, last in ((top, bottom), (left, right))
    )
    return read_image(path, grey=False)[:, rows, columns]


def _scaled(image: Tensor) -> Tensor:
    return image.float() / 255
