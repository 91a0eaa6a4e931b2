"""Readers of image folders. Segmentation: `images/` and `masks/` with the same names.
Classification: one folder per class.

`classes.txt` next to them names the classes of masks, one per line.

Both may be in subfolders `train/` and `val/`; without `val/` a part of the data is held out. Every
file is opened once before training, so that a broken file raises before the first step.
"""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.dataset import Column, Examples, Found, Reading
from evalgrad_lab.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
GREY = ("1", "L", "LA", "I", "I;16")


def read_segmentation(path: Path, how: Reading) -> Found:
    """Images with masks; without names there are as many classes as the largest label + 1."""
    train, *others = _parts(path)
    parts = [_segmentation_split(part) if part else None for part in others]
    found = Found(_segmentation_split(train), *parts)
    columns = [part.target for part in (found.train, *parts) if part is not None]
    masks = [mask for column in columns if isinstance(column, Column) for mask in column.items]
    labelled = [(str(mask), read_mask(mask)) for mask in masks]
    file = path / "classes.txt"
    names = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    names = [name.strip() for name in names if name.strip()]
    return replace(found, classes=class_names(file, labelled, names, how))


def read_classification(path: Path, how: Reading) -> Found:
    """Images in one folder per class, which names it, in alphabetical order."""
    train, *others = _parts(path)
    found = sorted(folder.name for folder in train.iterdir() if folder.is_dir())
    classes = found if how.classes is None else list(how.classes)
    if len(classes) < 2:
        raise UserError(
            f"{train} must hold one folder of images per class, at least two; got {classes}."
        )
    parts = [_classification_split(part, classes) if part else None for part in others]
    return Found(_classification_split(train, classes), *parts, classes=classes)


def read_images(path: Path) -> Examples:
    """Images alone, for predictions: those of `path/images`, or of `path` itself."""
    files = list_images(path / "images" if (path / "images").is_dir() else path)
    return Examples(_images(files), None, [file.stem for file in files])


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder in the order of their names; raises for an empty folder."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is missing or not a folder. Segmentation reads images/ and masks/; see"
            " docs/train.md."
        )
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise UserError(f"{folder} contains no images. Put images in it ({', '.join(SUFFIXES)}).")
    for first, second in itertools.pairwise(sorted(files, key=lambda file: file.stem)):
        if first.stem == second.stem:
            raise UserError(
                f"{first} and {second.name} differ only in their suffix, but masks and predictions"
                " are matched by the name without it. Rename one."
            )
    return files


def read_image(file: Path, grey: bool) -> Tensor:
    """An image as (channels, H, W) in [0, 1]."""
    image = open_image(file)
    if not grey:
        colours = np.array(image.convert("RGB"), dtype=np.float32)
        return torch.from_numpy(colours.transpose(2, 0, 1) / 255)
    if image.mode.startswith("I"):  # 16 bits
        return torch.from_numpy(np.array(image, dtype=np.float32)[None] / 65535)
    return torch.from_numpy(np.array(image.convert("L"), dtype=np.float32)[None] / 255)


def read_mask(file: Path) -> Tensor:
    """A mask as (H, W) class indices."""
    image = open_image(file)
    values = np.array(image)
    if values.ndim != 2:
        raise UserError(
            f"{file} must have one channel of class indices; got an image of mode {image.mode}."
            " Convert it, for example to mode L."
        )
    return torch.from_numpy(values.astype(np.int64))


def open_image(file: Path, decode: bool = True) -> Image.Image:
    """The image, or its size and mode alone; raises with its name if it cannot be read."""
    try:
        with file.open("rb") as stream:
            image = Image.open(stream)
            if decode:
                image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(
            f"{file} cannot be read as an image ({error}). Replace or remove it."
        ) from error
    return image


def class_names(
    path: Path, masks: list[tuple[str, Tensor]], names: list[str], how: Reading
) -> list[str]:
    """The names of the classes: those that exist already, those that `path` gives, or numbers; a
    label beyond them raises with the name of its mask.
    """
    if how.classes is not None:
        _check_labels(masks, len(how.classes), how)
        return list(how.classes)
    count = 2 if how.task == "ranking" else how.num_classes
    if names and count not in (None, len(names)):
        raise UserError(f"{path} names {len(names)} classes, but there are {count}.")
    largest = _check_labels(masks, len(names) or count, how)
    if not names and count is None and largest == 0:
        raise UserError(
            f"the masks contain no label except 0 and {how.ignore_index}, which is ignored. Save"
            " class indices, 1 for the foreground of a binary task, not 255."
        )
    return names or [str(c) for c in range(count or largest + 1)]


def _check_labels(masks: list[tuple[str, Tensor]], count: int | None, how: Reading) -> int:
    """The largest label; raises for one that cannot be."""
    repair = "Increase --num-classes, correct the mask, or pass the label as --ignore-index."
    if how.classes is not None:
        repair = f"Correct the mask: the model has {len(how.classes)} classes."
    largest = 0
    for name, mask in masks:
        labels = mask[mask != how.ignore_index]
        low, high = (int(labels.min()), int(labels.max())) if labels.numel() else (0, 0)
        if low < 0 or (count is not None and high >= count):
            raise UserError(
                f"{name}: the labels must be in [0, {count or 'C'}) or {how.ignore_index}"
                f" (ignored); got {low if low < 0 else high}. {repair}"
            )
        largest = max(largest, high)
    return largest


def _parts(path: Path) -> tuple[Path, Path | None, Path | None]:
    """The folders of training, validation and test data; without `train/` the folder itself."""
    folders = [path / name for name in ("train", "val", "test")]
    train, validation, test = (folder if folder.is_dir() else None for folder in folders)
    return train or path, validation, test


def _segmentation_split(path: Path) -> Examples:
    images = list_images(path / "images")
    masks = {file.stem: file for file in list_images(path / "masks")}
    stems = {file.stem for file in images}
    for stem, mask in masks.items():
        if stem not in stems:
            raise UserError(
                f"{mask} has no image. Add {path / 'images' / (stem + '.png')} or remove the mask."
            )
    for image in images:
        if image.stem not in masks:
            raise UserError(
                f"{image} has no mask. Add {path / 'masks' / (image.stem + '.png')} or remove the"
                " image."
            )
    paired = [masks[image.stem] for image in images]
    inputs = _images(images)
    for image, mask in zip(images, paired, strict=True):
        sizes = open_image(mask, decode=False).size, open_image(image, decode=False).size
        if sizes[0] != sizes[1]:
            raise UserError(
                f"{mask} is {sizes[0]} pixels but its image is {sizes[1]}. Give both the same size."
            )
    return Examples(inputs, Column(list(paired), read_mask), [image.stem for image in images])


def _classification_split(path: Path, classes: list[str]) -> Examples:
    unknown = sorted({folder.name for folder in path.iterdir() if folder.is_dir()} - set(classes))
    if unknown:
        raise UserError(
            f"{path / unknown[0]} is a class that is missing from the training data. Add it to"
            " train/ or remove it."
        )
    files: list[Path] = []
    targets = Column([])
    for c, name in enumerate(classes):
        own = list_images(path / name) if (path / name).is_dir() else []
        files += own
        targets.items.extend([torch.tensor(c)] * len(own))
    return Examples(_images(files), targets, [f"{file.parent.name}/{file.name}" for file in files])


def _images(files: list[Path]) -> Column:
    """Images read when asked for; the first says whether all are grey or in colour."""
    grey = open_image(files[0], decode=False).mode in GREY
    return Column(list(files), partial(read_image, grey=grey))
