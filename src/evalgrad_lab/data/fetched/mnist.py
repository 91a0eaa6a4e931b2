"""MNIST and Fashion-MNIST in idx files, and MNIST-100: pairs of digits as `digit_pairs` makes them,
from larger images.
"""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.pairs import within_group
from evalgrad_lab.data.fetched import place

HOMES = {
    "mnist": ("package", "data"),
    "fashion-mnist": ("usr", "share", "datasets", "fashion-mnist"),
}


def images(name: str) -> tuple[Part, Part]:
    """Training and test part of `mnist` or `fashion-mnist`: images (n, 28, 28) in 0..1 and classes
    0..9.
    """
    folder = place(name, *HOMES[name])
    train, test = (
        Part(
            read_idx(folder, f"{part}-images-idx3-ubyte").float() / 255,
            read_idx(folder, f"{part}-labels-idx1-ubyte").long(),
        )
        for part in ("train", "t10k")
    )
    return train, test


def read_idx(folder: Path, name: str) -> Tensor:
    """An idx file of bytes, plain or gzipped: two zeros, type 8, the number of axes, the big-endian
    sizes, the bytes.
    """
    plain = folder / name
    content = (
        plain.read_bytes()
        if plain.exists()
        else gzip.decompress((folder / f"{name}.gz").read_bytes())
    )
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4).tolist()
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * axes).copy()).view(
        shape
    )


def mnist_pairs(seed: int, sizes: Sizes, *, noise: float) -> Dataset[Part]:
    """MNIST-100: two digits of 14x14 pixels side by side, flat (n, 392); test digits apart."""
    generator = torch.Generator().manual_seed(seed)
    train, test = images("mnist")
    order = torch.randperm(len(train), generator=generator)
    pools = [(train, order[:50000]), (train, order[50000:]), (test, torch.arange(len(test)))]
    first, second, third = (
        _pairs(part, pool, count, generator)
        for (part, pool), count in zip(pools, sizes, strict=True)
    )
    noisy = [
        Part(part.inputs, within_group(part.target, noise, generator)) for part in (first, second)
    ]
    return Dataset(noisy[0], noisy[1], third)


def _pairs(part: Part, pool: Tensor, count: int, generator: torch.Generator) -> Part:
    left, right = pool[torch.randint(len(pool), (2, count), generator=generator)]
    small = [torch.nn.functional.avg_pool2d(part.inputs[side], 2) for side in (left, right)]
    return Part(
        3 * (torch.cat(small, 2).flatten(1) - 0.3), 10 * part.target[left] + part.target[right]
    )
