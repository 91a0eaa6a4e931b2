"""Pascal VOC 2012 (VOCdevkit/VOC2012/...) and the SBD annotations that the papers add
(benchmark_RELEASE/dataset/...).
"""

from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.folders import read_mask
from evalgrad_lab.data.layouts.images import existing, images_and_masks
from evalgrad_lab.errors import UserError

CLASSES = 21


def voc(root: Path, split: str) -> Examples:
    """`train`, `val`, `trainval`; `trainaug` adds images of SBD that are not in VOC's `val`."""
    base = existing(root / "VOCdevkit" / "VOC2012", "Pascal VOC 2012")
    if split != "trainaug":
        return images_and_masks(_voc_pairs(base, _names(_voc_list(base, split))))
    validation = set(_names(_voc_list(base, "val")))
    own = _names(_voc_list(base, "train"))
    extra = [name for name in _sbd_names(root) if name not in validation and name not in set(own)]
    return images_and_masks([*_voc_pairs(base, own), *_sbd_pairs(root, extra)], read_either)


def _voc_list(base: Path, split: str) -> Path:
    path = base / "ImageSets" / "Segmentation" / f"{split}.txt"
    return existing(path, f"the names of the {split} split")


def _names(path: Path) -> list[str]:
    return path.read_text().split()


def _voc_pairs(base: Path, names: list[str]) -> list[tuple[Path, Path]]:
    return [
        (base / "JPEGImages" / f"{name}.jpg", base / "SegmentationClass" / f"{name}.png")
        for name in names
    ]


def _sbd_names(root: Path) -> list[str]:
    base = existing(root / "benchmark_RELEASE" / "dataset", "the SBD annotations")
    parts = ("train", "val")
    lists = [existing(base / f"{part}.txt", f"the names of SBD's {part} split") for part in parts]
    return [name for path in lists for name in _names(path)]


def _sbd_pairs(root: Path, names: list[str]) -> list[tuple[Path, Path]]:
    base = root / "benchmark_RELEASE" / "dataset"
    return [(base / "img" / f"{name}.jpg", base / "cls" / f"{name}.mat") for name in names]


def read_either(path: Path) -> Tensor:
    """A mask of VOC (PNG) or of SBD (MATLAB)."""
    return read_sbd(path) if path.suffix == ".mat" else read_mask(path)


def read_sbd(path: Path) -> Tensor:
    """The field GTcls.Segmentation of an SBD file. The MATLAB format holds arrays, no code."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        classes = loadmat(path)["GTcls"]["Segmentation"][0, 0]
    except (MatReadError, KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} must be a MATLAB file with GTcls.Segmentation. Take it from SBD's folder cls."
        ) from error
    return torch.from_numpy(classes.astype("int64"))
