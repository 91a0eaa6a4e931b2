"""Time of the losses with one library of the kernels and with another, in turn."""

import ctypes
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad import _native

ROUNDS = 201


def _losses() -> dict[str, Callable[[], object]]:
    """A forward pass of each kind, on tensors of a training."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    maps, classes = draw(2, 21, 128, 128), torch.randint(21, (2, 128, 128), generator=generator)
    lists, relevant = draw(4096), draw(4096) > 1
    rows, label = draw(256, 1000), torch.randint(1000, (256,), generator=generator)
    binary = (draw(4, 128, 128), draw(4, 128, 128) > 0)
    doubles = rows.double()
    return {
        "lovasz_softmax_loss": lambda: eg.lovasz_softmax_loss(maps, classes),
        "lovasz_softmax_loss(bins)": lambda: eg.lovasz_softmax_loss(maps, classes, bins=4096),
        "lovasz_hinge_loss": lambda: eg.lovasz_hinge_loss(*binary),
        "loss_max_pooling": lambda: eg.loss_max_pooling(maps[:, 0].abs()),
        "smooth_topk_loss": lambda: eg.smooth_topk_loss(rows, label),
        "smooth_topk_loss, double": lambda: eg.smooth_topk_loss(doubles, label),
        "topk_hinge_loss": lambda: eg.topk_hinge_loss(rows, label),
        "direct_average_precision_loss": lambda: eg.direct_average_precision_loss(lists, relevant),
        "direct_ndcg_loss": lambda: eg.direct_ndcg_loss(lists, relevant),
        "direct_jaccard_loss": lambda: eg.direct_jaccard_loss(lists, relevant),
    }


def compared(library: Path) -> dict[str, list[float]]:
    """Least seconds of each loss on one thread: with the installed library, with a copy of it,
    which shows the noise, and with the other.
    """
    with TemporaryDirectory() as folder:
        copy = shutil.copy(_native.library._name, folder)  # type: ignore[union-attr]
        loaded = [_native._read_table(ctypes.CDLL(str(path))) for path in (copy, library)]
    tables, threads = [_native.kernels, *loaded], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {name: _in_turn(run, tables) for name, run in _losses().items()}
    finally:
        torch.set_num_threads(threads)
        _native.kernels = tables[0]


def _in_turn(run: Callable[[], object], tables: list[_native.Table]) -> list[float]:
    least, order, random = [float("inf")] * len(tables), list(range(len(tables))), Random(0)
    for _ in range(ROUNDS):
        random.shuffle(order)  # in a fixed one, one may always find the memory that another left
        for which in order:
            _native.kernels = tables[which]
            start = time.perf_counter()
            run()
            least[which] = min(least[which], time.perf_counter() - start)
    return least
