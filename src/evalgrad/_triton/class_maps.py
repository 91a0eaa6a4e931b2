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

_EACH = 16  # numbers of a tile in a thread
_MOST_CLASSES = 2048  # of more, a tile would have fewer than two pixels


def fits(x: Tensor) -> bool:
    """Whether a tile holds all classes, and 32 bits count the places of an image and the pixels of
    a group; not for nothing at all.
    """
    _, images, classes, pixels = x.shape
    small = max(images, classes) * pixels < 2**31
    return classes <= _MOST_CLASSES and small and x.numel() > 0


def tiling(x: Tensor) -> tuple[int, dict[str, Any]]:
    """Number of tiles in an image, and the options of a launch."""
    classes = triton.next_power_of_2(x.shape[2])
    warps = 4 if classes <= 256 else 8  # with more, a thread has no 255 registers
    pixels = min(1024, warps * 32 * _EACH // classes)
    return triton.cdiv(x.shape[3], pixels), {
        "CLASSES": classes,
        "PIXELS": pixels,
        "num_warps": warps,
        **ROUNDED,
    }


def class_maps_example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(1, 2, 3, 99, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randint(-1, 3, (1, 2, 99), generator=generator)


@triton.jit
def read_tile(x, label, tile, tiles, C, S, CLASSES: tl.constexpr, PIXELS: tl.constexpr):
    """Of tile number `tile` of all: the place of its image among the logits and the places of its
    own in the image, which of them there are, probabilities, foreground, and which pixels count.
    """
    image = (tile // tiles).to(tl.int64)
    c = tl.arange(0, CLASSES)[:, None]
    s = (tile % tiles) * PIXELS + tl.arange(0, PIXELS)[None, :]
    y = tl.load(label + image * S + s, mask=s < S, other=-1).to(tl.int32)
    first = image * C * S
    place = c * S + s
    inside = (c < C) & (s < S)
    logits = tl.load(x + first + place, mask=inside & (y >= 0), other=0.0)
    # +inf acts as its limit; what is no class has no part
    logits = tl.where(logits == float("inf"), 3.4028234663852886e38, logits)
    logits = tl.where(c < C, logits, float("-inf"))
    peak = tl.max(logits, 0)[None, :]
    exponentials = tl.exp(logits - peak)
    p = exponentials / tl.sum(exponentials, 0)[None, :]
    return first, place, inside, p, y == c, inside & (y >= 0)


@triton.jit
def through_softmax(p, slope, CLASSES: tl.constexpr):
    """p (g - sum of g p), the slopes g taken relative to that of the likeliest class: see
    evalgrad.lovasz.class_maps.
    """
    c = tl.arange(0, CLASSES)[:, None]
    likeliest = c == tl.argmax(p, 0)[None, :]
    slope -= tl.sum(tl.where(likeliest, slope, 0.0), 0)[None, :]
    return p * (slope - tl.sum(p * slope, 0)[None, :])
