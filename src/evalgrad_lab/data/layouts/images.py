"""Data sets of image files: what the layouts have in common once their files are found."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from evalgrad_lab.errors import UserError

IGNORE = 255  # pixels that no class has, in every layout here


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


def read_pixels(path: Path) -> np.ndarray:
    """The values of an image file as they are stored: indices for a palette, not colours."""
    try:
        with Image.open(path) as image:
            return np.array(image)
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path} cannot be read as an image. Replace the file.") from error


def read_image(path: Path) -> Tensor:
    """Colours (3, H, W) in 0..1; grey images in three equal channels."""
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path} cannot be read as an image. Replace the file.") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def read_classes(path: Path) -> Tensor:
    """Class indices (H, W) of a mask whose pixels are the indices."""
    pixels = read_pixels(path)
    if pixels.ndim != 2:
        raise UserError(
            f"{path} must have one number per pixel; it has {pixels.shape[-1]}. Take the mask of"
            " class indices."
        )
    return torch.from_numpy(pixels.astype(np.int64))


class ImagesAndMasks:
    """(image, classes) of each pair of files."""

    def __init__(
        self, pairs: Sequence[tuple[Path, Path]], read_mask: Callable[[Path], Tensor] = read_classes
    ) -> None:
        for image, mask in pairs:
            existing(image, f"the image of {mask.name}")
            existing(mask, f"the mask of {image.name}")
        self.pairs, self.read_mask = list(pairs), read_mask

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, mask = self.pairs[index]
        colours, classes = read_image(image), self.read_mask(mask)
        if colours.shape[1:] != classes.shape:
            raise UserError(
                f"{mask} must be of the size of {image}; got {tuple(classes.shape)} and"
                f" {tuple(colours.shape[1:])}."
            )
        return colours, classes


class LabelledImages:
    """(image, class) of each file."""

    def __init__(self, files: Sequence[tuple[Path, int]]) -> None:
        self.files = list(files)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        path, label = self.files[index]
        return read_image(path), torch.tensor(label)


class Regions:
    """(image of the region, 1 or 0) of every box of every file; boxes are left, top, right, bottom,
    inclusive and from 1.
    """

    PADDING = 16  # pixels of the surroundings on each side, as far as the image goes

    def __init__(self, files: Sequence[tuple[Path, Tensor]], target: Tensor) -> None:
        self.files, self.target = list(files), target
        self.owner = torch.repeat_interleave(torch.tensor([len(boxes) for _, boxes in files]))
        self.boxes = torch.cat([boxes for _, boxes in files])

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = read_image(self.files[int(self.owner[index])][0])
        left, top, right, bottom = (int(side) for side in self.boxes[index])
        rows, columns = (
            (max(a - 1 - self.PADDING, 0), b + self.PADDING)
            for a, b in ((top, bottom), (left, right))
        )
        return image[:, slice(*rows), slice(*columns)], self.target[index]


class InMemory:
    """(image, class) of tensors; bytes become 0..1 as they are asked for."""

    def __init__(self, images: Tensor, target: Tensor) -> None:
        self.images, self.target = images, target

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index].float() / 255, self.target[index]


Samples = ImagesAndMasks | LabelledImages | InMemory | Regions
