"""Tiles of class maps, for the kernels of losses that go through a softmax.

Canonical shapes: x ``(G, M, C, S)`` logits of G groups of M images with S pixels, label ``(G, M,
S)`` int64, negative where ignored. A program has a tile of some pixels with all their classes in
registers, so that a pass reads the logits once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED

_REGISTERS = 16  # of a thread, for one number per pixel and class of its tile
MOST_CLASSES = 2048  # of more, a tile of the eight pixels that fill a transaction has no room


def tiling(x: Tensor) -> tuple[int, dict[str, Any]]:
    """Number of tiles in an image, and the options of a launch."""
    classes = triton.next_power_of_2(x.shape[2])
    warps = max(4, classes * 8 // (32 * _REGISTERS))
    pixels = min(1024, warps * 32 * _REGISTERS // classes)
    return triton.cdiv(x.shape[3], pixels), {
        "CLASSES": classes,
        "PIXELS": pixels,
        "num_warps": warps,
        **ROUNDED,
    }


def class_maps_example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(2, 1, 5, 300, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randint(-1, 5, (2, 1, 300), generator=generator)


@triton.jit
def read_tile(x, label, tile, tiles, C, S, CLASSES: tl.constexpr, PIXELS: tl.constexpr):
    """Of tile number `tile` of all: its image, the places of its logits and which of them there
    are, probabilities, foreground, and which pixels count.
    """
    image = (tile // tiles).to(tl.int64)
    c = tl.arange(0, CLASSES)[:, None]
    s = (tile % tiles) * PIXELS + tl.arange(0, PIXELS)[None, :]
    y = tl.load(label + image * S + s, mask=s < S, other=-1)
    place = image * C * S + c.to(tl.int64) * S + s
    inside = (c < C) & (s < S)
    logits = tl.load(x + place, mask=inside & (y >= 0), other=0.0)
    # +inf acts as its limit; what is no class has no part
    logits = tl.where(logits == float("inf"), 3.4028234663852886e38, logits)
    logits = tl.where(c < C, logits, float("-inf"))
    peak = tl.max(logits, 0)[None, :]
    exponentials = tl.exp(logits - peak)
    p = exponentials / tl.sum(exponentials, 0)[None, :]
    return image, place, inside, p, y == c, inside & (y >= 0)


@triton.jit
def through_softmax(p, slope, CLASSES: tl.constexpr):
    """p (g - sum of g p), the slopes g taken relative to that of the likeliest class: see
    evalgrad._softmax.
    """
    c = tl.arange(0, CLASSES)[:, None]
    likeliest = c == tl.argmax(p, 0)[None, :]
    slope -= tl.sum(tl.where(likeliest, slope, 0.0), 0)[None, :]
    return p * (slope - tl.sum(p * slope, 0)[None, :])
