"""The 18 brains of the Internet Brain Segmentation Repository, version 2 in NIfTI:
IBSR_01/IBSR_01_ana_strip.nii.gz and IBSR_01/IBSR_01_seg_ana.nii.gz, to IBSR_18.
"""

from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Column, Examples
from evalgrad_lab.data.files.nifti import read_nifti
from evalgrad_lab.data.layouts.images import existing
from evalgrad_lab.errors import UserError

# left and right, with the numbers that they have in the files
CODES = {"thalamus": (10, 49), "caudate": (11, 50), "putamen": (12, 51), "pallidum": (13, 52)}
IBSR_CLASSES = ("background", *(f"{side} {name}" for name in CODES for side in ("left", "right")))
VOLUMES, FOLDS = 18, 3


def ibsr(root: Path, split: str, *, fold: int = 0, axis: int = 2) -> Examples:
    """Slices of the 11 training volumes, of the one for validation (`val`) or of the 6 test
    volumes of a fold (Lovász-Softmax, appendix B): 8 structures and the background. Training slices
    without a structure are left out. Each volume is divided by its largest value.
    """
    images, masks, names = [], [], []
    for number in _volumes(split, fold):
        name = f"IBSR_{number:02}"
        paths = (root / name / f"{name}_{end}.nii.gz" for end in ("ana_strip", "seg_ana"))
        volume, codes = (read_nifti(existing(path, "a volume of IBSR")) for path in paths)
        if volume.shape != codes.shape:
            raise UserError(
                f"{root / name} has volumes of different shapes: {tuple(volume.shape)} and"
                f" {tuple(codes.shape)}. Unpack the archive again."
            )
        classes = _classes(codes)
        kept = [z for z in range(classes.shape[axis]) if _counts(classes.select(axis, z), split)]
        images += [(volume.select(axis, z), float(volume.max())) for z in kept]
        masks += [classes.select(axis, z) for z in kept]
        names += [f"{name} {z}" for z in kept]
    return Examples(Column(images, _scaled), Column(masks, Tensor.long), names)


def _volumes(split: str, fold: int) -> list[int]:
    """Numbers from 1: six in a row for the test, the one behind them for validation."""
    size = VOLUMES // FOLDS
    order = [(size * fold + i) % VOLUMES + 1 for i in range(VOLUMES)]
    parts = {"test": order[:size], "val": order[size : size + 1], "train": order[size + 1 :]}
    if split not in parts or fold not in range(FOLDS):
        raise UserError(
            f"ibsr has the splits {', '.join(parts)} of the folds 0 to {FOLDS - 1}; got {split} of"
            f" fold {fold}."
        )
    return parts[split]


def _classes(codes: Tensor) -> Tensor:
    classes = torch.zeros(codes.shape, dtype=torch.uint8)
    for number, code in enumerate((code for pair in CODES.values() for code in pair), 1):
        classes[codes == code] = number
    return classes


def _counts(mask: Tensor, split: str) -> bool:
    return split != "train" or bool(mask.any())


def _scaled(item: tuple[Tensor, float]) -> Tensor:
    values, largest = item
    return values[None].float() / (largest or 1.0)
