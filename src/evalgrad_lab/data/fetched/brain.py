"""One brain: a T1 volume and its anatomical regions, the stand-in for the IBSR data of the Lovász
paper.
"""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.data.fetched import place

HOME = ("usr", "share", "mricron", "templates")
STRUCTURES = tuple(
    f"{name}_{side}" for name in ("Thalamus", "Caudate", "Putamen", "Pallidum") for side in "LR"
)


def brain() -> tuple[Tensor, Tensor]:
    """Intensities (181, 217, 181) in 0..1, axes left-right, back-front, up; classes: 0 background,
    then `STRUCTURES` from 1.
    """
    regions = read_nifti(place("brain", *HOME, "aal.nii.gz")).long()
    classes = torch.zeros_like(regions)
    for number, code in enumerate(_codes(), 1):
        classes[regions == code] = number
    return read_nifti(place("brain", *HOME, "ch2.nii.gz")).float() / 255, classes


def _codes() -> list[int]:
    """The numbers of `STRUCTURES` in the atlas, whose table has lines such as '77
    Thalamus_L 7101'.
    """
    lines = place("brain", *HOME, "aal.nii.txt").read_text().splitlines()
    numbers = {line.split()[1]: int(line.split()[0]) for line in lines if len(line.split()) >= 2}
    return [numbers[name] for name in STRUCTURES]


def read_nifti(path: Path) -> Tensor:
    """A gzipped NIfTI-1 volume of unsigned bytes, the only kind these two are."""
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, "<i2", 3, offset=42).tolist()
    start = int(np.frombuffer(content, "<f4", 1, offset=108)[0])
    # The first axis runs fastest.
    return (
        torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).copy())
        .view(shape[::-1])
        .permute(2, 1, 0)
    )
