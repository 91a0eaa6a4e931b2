"""Calls of the kernels, written down: every loss and function of the tests' tables on ordinary and
on hostile numbers, with the tensors before and after.
"""

import itertools
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad import _native
from evalgrad.lovasz.softmax_bins import bin_counts, bin_gradient, bin_slopes
from evalgrad.s_measures.surrogate_errors import SURROGATES, error_totals

ROOT = Path(__file__).parents[1]
MOST_BYTES = 8 << 20  # of the calls of one kernel on one dtype: by it a replay ends
ROUND = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


def _bytes(x: Tensor) -> bytes:
    return bytes(x.detach().contiguous().view(-1).view(torch.uint8).numpy()) if x.numel() else b""


class Recorder:
    """Stands in for `_native.call` and writes down what it is given and what comes of it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.call = file, _native.call
        self.calls, self.bytes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def __call__(self, name: str, first: Tensor, *rest: Any) -> None:
        values = (first, *rest)
        before = [_bytes(x) if isinstance(x, Tensor) else x for x in values]
        self.call(name, first, *rest)
        size = sum(len(old) for old in before if isinstance(old, bytes))
        types = _native.kernels[name, first.dtype].types
        if self.bytes[name, types] + size > MOST_BYTES:
            return
        self.bytes[name, types] += size
        self.calls[name, types] += 1
        self._text(name)
        self._text(types)
        for letter, old, value in zip(types, before, values, strict=True):
            if letter == "i":
                self.file.write(struct.pack("<q", value))
            elif letter == "r":
                self.file.write(struct.pack("<d", value))
            elif value is None:
                self.file.write(struct.pack("<q", -1))
            else:
                self.file.write(struct.pack("<q", len(old)) + old + _bytes(value))

    def _text(self, text: str) -> None:
        self.file.write(struct.pack("<q", len(text)) + text.encode())


def _hostile(x: Tensor, generator: torch.Generator) -> Tensor:
    """Some of the numbers replaced by zeros, infinities, NaN and equal ones."""
    x = x.clone()
    places = torch.randint(x.numel(), (max(x.numel() // 3, 1),), generator=generator)
    chosen = torch.randint(len(ROUND), places.shape, generator=generator)
    x.view(-1)[places] = torch.tensor(ROUND, dtype=x.dtype)[chosen]
    return x


@dataclass(frozen=True)
class Inner:
    """Operators that only several ranks or a whole training call, as a row like those of the
    tables.
    """

    call: Callable[[Tensor, Tensor], object]
    labels: int
    forks = True

    def draw(self, items: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(items)
        classes = (self.labels,) if self.labels > 2 else ()
        x = torch.randn(3, *classes, items, generator=generator)
        return x, torch.randint(-1, self.labels, (3, items), generator=generator)


def _bins_of_ranks(x: Tensor, label: Tensor) -> None:
    x, label = x[None], label[None]
    counts = bin_counts(x, label, 16)
    slopes = bin_slopes(counts, x.new_ones(counts.shape[:2]), 1.0, 0.5)
    bin_gradient(x, label, slopes)


def _totals_of_a_stream(x: Tensor, label: Tensor) -> None:
    for surrogate in SURROGATES.values():
        error_totals(x.flatten(), label.flatten() == 1, x.new_tensor([-0.5, 0.0, 2.0]), surrogate)


def _many_pixels(x: Tensor, label: Tensor) -> None:
    """Enough for the units of the hinge, and for the fine bins of the Lovász losses."""
    for items in (5000, 70_000):
        many, true = _long(x[:1], label[:1].clamp(max=1), items)
        many[..., ::7] *= 1e30
        eg.lovasz_softmax_loss(many, true, ignore_index=-1)
        for options in ({}, {"bins": 64}):
            eg.lovasz_hinge_loss(many[:, 0], true, ignore_index=-1, **options)
        right = torch.where(true > 0, many[:, 0].abs(), -many[:, 0].abs())
        right[:, ::3] = 0.5
        eg.lovasz_hinge_loss(right, true, ignore_index=-1)
        eg.loss_max_pooling(many[:, 0].abs())


def _many_classes(x: Tensor, label: Tensor) -> None:
    """Enough for the largest to be sought in groups, and to be sorted."""
    scores, label = _long(x.flatten(1), label[:, 0].clamp(min=0))
    for k in (1, 5, 300):
        eg.smooth_topk_loss(scores, label, k=k)
        eg.topk_hinge_loss(scores, label, k=k)


INNER = (
    *(Inner(_bins_of_ranks, labels=4), Inner(_totals_of_a_stream, labels=2)),
    *(Inner(_many_pixels, labels=3), Inner(_many_classes, labels=3)),
)


def _inputs(row: Any, seed: int) -> tuple[Tensor, Tensor]:
    if hasattr(row, "labels"):
        return row.draw(3 + seed % 40)
    return row.draw(torch.Generator().manual_seed(seed))


def _crowded(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Enough rows for several threads."""
    times = max(1, 70_000 // max(x.numel(), 1))
    return x.repeat(times, *[1] * (x.ndim - 1)), target.repeat(times, *[1] * (target.ndim - 1))


def _long(x: Tensor, target: Tensor, items: int = 1500) -> tuple[Tensor, Tensor]:
    """Rows of more items than a kernel takes at a time; the targets too, unless they are of a row
    as a whole.
    """
    times = max(1, items // max(x.shape[-1], 1))
    if target.ndim and target.shape[-1] == x.shape[-1]:
        target = target.repeat(*[1] * (target.ndim - 1), times)
    x = x.repeat(*[1] * (x.ndim - 1), times)
    generator = torch.Generator().manual_seed(items)
    return x * (1 - torch.rand(x.shape, generator=generator) / 2), target  # few ties


def _draw(rows: list[Any], seconds: float) -> None:
    """Calls of all rows with ever new seeds, each in float32 and float64."""
    end, seed = time.monotonic() + seconds, 0
    while time.monotonic() < end or seed < 4:
        generator = torch.Generator().manual_seed(seed)
        for row in rows:
            x, target = _inputs(row, seed)
            if seed in (1, 2) and row not in INNER:
                x, target = _long(x, target)
            if seed == 3 and getattr(row, "forks", False):  # no products of matrices
                x, target = _crowded(x, target)
            x = _hostile(x, generator) if seed % 2 else x
            call = getattr(row, "call", row)
            options = ({}, *getattr(row, "options", ()))[: None if seed != 3 else 1]
            for option, dtype in itertools.product(options, (torch.float32, torch.float64)):
                with suppress(TypeError, ValueError):  # an option that does not fit these draws
                    call(x.to(dtype), target, **option)
        seed += 1


def record(path: Path, seconds: float) -> dict[tuple[str, str], int]:
    """Write calls for about so many seconds; how many of each kernel and the types it takes."""
    sys.path.insert(0, str(ROOT / "tests"))
    from cases import CASES  # type: ignore[import-not-found]
    from functions import FUNCTIONS  # type: ignore[import-not-found]

    with path.open("wb") as file:
        recorder = Recorder(file)
        _native.call = recorder  # type: ignore[assignment]
        try:
            _draw([*CASES, *FUNCTIONS, *INNER], seconds)
        finally:
            _native.call = recorder.call
    return dict(recorder.calls)
