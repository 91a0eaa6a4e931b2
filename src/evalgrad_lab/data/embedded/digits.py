"""What is made of scikit-learn's 1797 handwritten digits of 8x8 pixels. Training, validation and
test share no glyph: they come from a seeded partition of the glyphs into three pools.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, permutation, relabelled

POOLS = Sizes(1077, 270, 450)  # 60, 15 and 25 per cent of the glyphs
PAIRS, GROUP = 100, 5  # classes of `digit_pairs`, in groups of five
CANVAS = 16  # side of `s_digits`
SCENE_CLASSES = 11  # the background is class 0, digit d is class d + 1
GLYPH_SIZES, MOST_DIGITS = range(11, 17), 3  # of a scene
INK = 0.3  # from this grey value on, a pixel belongs to its digit
INNER = 0.9  # only pixels this dark are stroke


@cache
def glyphs() -> Part:
    """The images (1797, 8, 8) in 0..1 and their digits, in scikit-learn's order."""
    from sklearn.datasets import load_digits  # takes seconds to import

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32) / 16
    return Part(images, torch.tensor(data.target, dtype=torch.int64))


def pools(seed: int) -> tuple[Part, Part, Part]:
    """The glyphs of training, validation and test."""
    images, digit = glyphs().inputs, glyphs().target
    parts = permutation(len(digit), seed).split(list(POOLS))
    first, second, third = (Part(images[part], digit[part]) for part in parts)
    return first, second, third


def _drawn(
    seed: int, sizes: Sizes, make: Callable[..., Part], generator: torch.Generator | None = None
) -> Dataset[Part]:
    """`make(pool, count, generator)` of every part in turn."""
    generator = generator or torch.Generator().manual_seed(seed)
    counts = zip(pools(seed), sizes, strict=True)
    return Dataset(*(make(pool, count, generator) for pool, count in counts))


def scaled(pixels: Tensor, factor: float = 3.0) -> Tensor:
    """Grey values in rows, roughly centred and of unit size by fixed numbers: nothing is learnt
    from validation or test.
    """
    return factor * (pixels.flatten(1) - 0.3)


def resized(images: Tensor, size: int) -> Tensor:
    """(n, 8, 8) glyphs at `size` x `size` pixels."""
    return F.interpolate(images[:, None], size=(size, size), mode="bilinear")[:, 0]


def noisy_digits(seed: int, *, swapped: float = 0.4) -> Dataset[Part]:
    """Pixels (n, 64) and membership (n, 10): but for the test, a share `swapped` of each digit's
    members is swapped with as many others, drawn anew for each digit.
    """
    generator = torch.Generator().manual_seed(seed)
    clean = Dataset(*(Part(scaled(p.inputs), F.one_hot(p.target, 10)) for p in pools(seed)))
    return relabelled(clean, lambda target: swap_members(target, swapped, generator))


def swap_members(target: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """In each column turn round `share` of the ones and as many zeros."""
    result = target.clone()
    for column in result.T:
        ones, zeros = (torch.nonzero(column == value)[:, 0] for value in (1, 0))
        count = round(share * len(ones))
        for members in (ones, zeros):
            turned = members[torch.randperm(len(members), generator=generator)[:count]]
            column[turned] = 1 - column[turned]
    return result


def digit_table(seed: int, *, digit: int = 8) -> Dataset[Part]:
    """Grey values (n, 16) of 4x4 pixels, and whether they show `digit`: one in ten does."""
    coarse = [F.avg_pool2d(pool.inputs[:, None], 2) for pool in pools(seed)]
    parts = zip(coarse, pools(seed), strict=True)
    return Dataset(*(Part(scaled(c, 4.0), (pool.target == digit).long()) for c, pool in parts))


def digit_pairs(seed: int, sizes: Sizes, *, noise: float) -> Dataset[Part]:
    """digits-100: pixels (n, 128) of two digits a and b side by side, and the class 10 a + b. But
    for the test, labels are noisy `within_group`.
    """
    generator = torch.Generator().manual_seed(seed)
    clean = _drawn(seed, sizes, pairs_of, generator)
    return relabelled(clean, lambda target: within_group(target, noise, generator))


def pairs_of(pool: Part, count: int, generator: torch.Generator) -> Part:
    """`count` random pairs of square images."""
    first, second = torch.randint(len(pool), (2, count), generator=generator)
    images = torch.cat([pool.inputs[first], pool.inputs[second]], 2)
    return Part(scaled(images), 10 * pool.target[first] + pool.target[second])


def within_group(target: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """With chance `noise` a label becomes a uniformly drawn one of its group of five."""
    other = target // GROUP * GROUP + torch.randint(GROUP, target.shape, generator=generator)
    return torch.where(torch.rand(target.shape, generator=generator) < noise, other, target)


def s_digits(seed: int) -> Dataset[Part]:
    """After S-MNIST of S-measures, `two_sizes` of the digits on a canvas of 16x16 pixels."""
    drawn = pools(seed)
    small = (F.pad(pool.inputs, [CANVAS // 4] * 4) for pool in drawn)
    parts = zip(small, (resized(pool.inputs, CANVAS) for pool in drawn), drawn, strict=True)
    return two_sizes([(one, two, pool.target) for one, two, pool in parts])


def two_sizes(parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Dataset[Part]:
    """Pixels of the small images (n, side, side) and, added to them, of the same at double size;
    targets (2 n, 2): the digit, and 1 where the foreground is above the mean of training.
    """
    images = [torch.cat([small, large]) for small, large, _ in parts]
    sizes = [(some > INK).flatten(1).sum(1).double() for some in images]
    labels = [(size > sizes[0].mean()).long() for size in sizes]
    digits = [digit.repeat(2) for _, _, digit in parts]
    found = zip(images, digits, labels, strict=True)
    return Dataset(*(Part(scaled(i), torch.stack([digit, size], 1)) for i, digit, size in found))


def class_chances(tail: float) -> Tensor:
    """(10,) falling exponentially: digit 0 is `tail` times as frequent as digit 9."""
    return torch.softmax(-torch.arange(10) / 9 * torch.tensor(tail).log(), 0)


def digit_scenes(seed: int, sizes: Sizes, *, canvas: int = 32, tail: float = 9.0) -> Dataset[Part]:
    """Images (n, 1, canvas, canvas) with several digits, and label maps: ten classes with a long
    tail, and a dominant background.
    """
    return _drawn(seed, sizes, lambda *drawn: scenes(*drawn, canvas=canvas, tail=tail))


def scenes(pool: Part, count: int, generator: torch.Generator, *, canvas: int, tail: float) -> Part:
    """One to three glyphs each, 11 to 16 pixels large; a later digit covers an earlier one."""
    ladder = {size: resized(pool.inputs, size) for size in GLYPH_SIZES}
    chances = class_chances(tail) / torch.bincount(pool.target, minlength=10)
    drawn = torch.multinomial(
        chances[pool.target], count * MOST_DIGITS, replacement=True, generator=generator
    )
    size, top, left = torch.rand(3, count, MOST_DIGITS, generator=generator)
    number = torch.randint(1, MOST_DIGITS + 1, (count,), generator=generator)
    images = torch.zeros(count, 1, canvas, canvas)
    labels = torch.zeros(count, canvas, canvas, dtype=torch.int64)
    for i, which in enumerate(drawn.view(count, MOST_DIGITS).tolist()):
        for j in range(int(number[i])):
            side = GLYPH_SIZES[int(size[i, j] * len(GLYPH_SIZES))]
            y, x = (int(place[i, j] * (canvas - side + 1)) for place in (top, left))
            glyph = ladder[side][which[j]]
            ink = glyph > INK
            images[i, 0, y : y + side, x : x + side][ink] = glyph[ink]
            labels[i, y : y + side, x : x + side][ink] = pool.target[which[j]] + 1
    return Part(images, labels)


def strokes(seed: int, sizes: Sizes, *, canvas: int = 24, noise: float = 1.0) -> Dataset[Part]:
    """The thin inner line of one digit under heavy noise: images (n, 1, canvas, canvas) = stroke +
    noise * N(0, 1), and their masks.
    """

    def part(pool: Part, count: int, generator: torch.Generator) -> Part:
        which = torch.randint(len(pool), (count,), generator=generator)
        mask = resized(pool.inputs, canvas)[which] > INNER
        seen = mask + noise * torch.randn(mask.shape, generator=generator)
        return Part(seen[:, None], mask.long())

    return _drawn(seed, sizes, part)
