"""Data sets with a class for every image.

- CIFAR-10 and CIFAR-100 in their binary version: cifar-10-batches-bin/*.bin and
  cifar-100-binary/*.bin. The Python version of the same data is pickled, and a pickle from
  elsewhere can run any code: it is not read here.
- ImageNet as one folder per class: train/<wordnet id>/*.JPEG and val/<wordnet id>/*.JPEG.
"""

from pathlib import Path

import numpy as np
import torch

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.layouts.images import existing, found, images_in_memory, labelled_images
from evalgrad_lab.errors import UserError

PIXELS = 3 * 32 * 32
HELD_OUT = 5000  # the last training images, which the papers keep for validation


def cifar10(root: Path, split: str) -> Examples:
    """`train` without the last 5,000 images, `val` of these, `trainval`, `test`; classes 0..9."""
    folder = _folder(root, "cifar-10-batches-bin")
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    names = ["test_batch.bin"] if split == "test" else names
    return _part(np.concatenate([_records(folder / name, 1) for name in names]), 1, split)


def cifar100(
    root: Path,
    split: str,
    *,
    noise: float = 0.0,
    noise_seed: int = 0,
    clean_validation: bool = False,
    groups: str = "coarse",
) -> Examples:
    """As `cifar10`; fine classes 0..99. A record holds the coarse class, the fine class and the
    pixels.

    With chance `noise` a label, but for those of `test`, becomes any of its coarse class, itself
    included (smooth top-k, 5.1). The authors' code differs from the text: it has clean labels for
    validation (`clean_validation`), and takes five fine classes in a row (`groups` "fives") for a
    coarse class.
    """
    if groups not in ("coarse", "fives"):
        raise UserError(f"--data-options: `groups` must be coarse or fives; got {groups!r}.")
    folder = _folder(root, "cifar-100-binary")
    records = _records(folder / ("test.bin" if split == "test" else "train.bin"), 2)
    clean = split == "test" or (split == "val" and clean_validation)
    return _part(records if clean else _noisy(records, noise, noise_seed, groups), 2, split)


def _noisy(records: np.ndarray, noise: float, seed: int, groups: str) -> np.ndarray:
    """The records with other fine labels, always the same ones, so that a resumed run agrees."""
    generator = np.random.default_rng(seed)
    fine = records[:, 1].copy()
    coarse = fine // 5 if groups == "fives" else records[:, 0]
    changed = generator.random(len(fine)) < noise
    for group in np.unique(coarse):
        members = np.unique(records[coarse == group, 1])
        chosen = changed & (coarse == group)
        fine[chosen] = generator.choice(members, chosen.sum())
    return np.column_stack([coarse, fine, records[:, 2:]])


def _folder(root: Path, name: str) -> Path:
    return existing(root / name, "the binary version, not the Python one")


def _records(path: Path, labels: int) -> np.ndarray:
    content = np.fromfile(existing(path, "a batch of images"), np.uint8)
    if len(content) == 0 or len(content) % (labels + PIXELS):
        raise UserError(
            f"{path} must hold records of {labels + PIXELS} bytes; got {len(content)} bytes. Unpack"
            " the archive again."
        )
    return content.reshape(-1, labels + PIXELS)


def _part(records: np.ndarray, labels: int, split: str) -> Examples:
    cut = {"train": slice(None, -HELD_OUT), "val": slice(-HELD_OUT, None)}
    cut |= dict.fromkeys(("trainval", "test"), slice(None))
    if split not in cut:
        raise UserError(f"the split must be one of {', '.join(cut)}; got {split}.")
    chosen = records[cut[split]]
    images = torch.from_numpy(chosen[:, labels:].reshape(-1, 3, 32, 32).copy())
    target = torch.from_numpy(chosen[:, labels - 1].astype(np.int64))
    return images_in_memory(images, target, split)


def imagenet(
    root: Path, split: str, *, held_out: int = 0, per_class: int | None = None
) -> Examples:
    """The images of a split; classes are numbered as the sorted folders of `train`.

    `held_out` is the number of training images of each class, the last ones by name, that are not
    in `train` but in the split of that name; `per_class` takes so many of the others, for the
    subsets of smooth top-k, 5.2.
    """
    pairs = []
    for c, name in enumerate(class_folders(root)):
        folder = root / ("train" if split == "held_out" else split) / name
        paths = sorted(existing(folder, f"the {split} images of class {name}").glob("*.JPEG"))
        first = max(len(paths) - held_out, 0)
        parts = {"train": paths[:first][:per_class], "held_out": paths[first:]}
        pairs += [(path, c) for path in parts.get(split, paths)]
    return labelled_images(pairs)


def class_folders(root: Path) -> list[str]:
    """The names of the classes, WordNet's numbers."""
    train = existing(root / "train", "one folder per class")
    folders = (path for path in train.iterdir() if path.is_dir())
    return [folder.name for folder in found(folders, train, "folder of a class")]
