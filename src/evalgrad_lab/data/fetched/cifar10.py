"""CIFAR-10 as PNG sheets: each row of a 1024x10000 picture is one 32x32 image with its three
colours.
"""

import json

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.fetched import place


def cifar10() -> tuple[Part, Part]:
    """Training and test part: images (n, 3, 32, 32) in 0..1 and classes 0..9."""
    train = torch.cat([_sheet(f"data_batch_{number}.png") for number in range(1, 6)])
    return Part(train, _labels("train_lables.json")), Part(
        _sheet("test_batch.png"), _labels("test_lables.json")
    )


def _sheet(name: str) -> Tensor:
    with Image.open(place("cifar-10", "package", name)) as sheet:
        rows = torch.from_numpy(np.asarray(sheet.convert("RGB")).copy())
    return rows.view(-1, 32, 32, 3).permute(0, 3, 1, 2).float() / 255


def _labels(name: str) -> Tensor:
    return torch.tensor(json.loads(place("cifar-10", "package", name).read_text()))
