"""Arguments of the operators that Triton kernels serve: small ones, drawn by hypothesis, for the
interpreter, and the shapes of training for the compiler.
"""

import torch
from hypothesis import strategies as st

FEW = st.integers(1, 3)
PIXELS = st.sampled_from([1, 2, 7, 64, 129, 300])


@st.composite
def _generators(draw):
    return torch.Generator().manual_seed(draw(st.integers(0, 2**32)))


@st.composite
def class_maps(draw, extra=lambda draw, x: ()):
    """x (G, M, C, S), label (G, M, S) with some ignored, and what `extra` draws."""
    groups, images, classes, pixels = draw(FEW), draw(FEW), draw(st.integers(2, 9)), draw(PIXELS)
    generator = draw(_generators())
    x = 2 * torch.randn(groups, images, classes, pixels, generator=generator)
    lowest = draw(st.sampled_from([-1, 0, classes - 1]))
    label = torch.randint(lowest, classes, (groups, images, pixels), generator=generator)
    return x, label, *extra(draw, x)


def _bins(draw, x):
    return (draw(st.sampled_from([1, 2, 16, 100])),)


def _slopes(draw, x):
    shape = (x.shape[0], x.shape[2], 2, *_bins(draw, x))
    return (torch.randn(shape, generator=draw(_generators())),)


DRAWS = {
    "lovasz_bin_counts": class_maps(_bins),
    "lovasz_bin_gradient": class_maps(_slopes),
}


def _maps_of_training(classes, *extra):
    """Empty tensors on the meta device: the compiler wants dtypes and sizes only."""
    x = torch.empty(1, 2, classes, 512 * 1024, device="meta")
    label = torch.empty(1, 2, 512 * 1024, dtype=torch.int64, device="meta")
    return x, label, *extra


SMALL_TYPICAL_LARGE = (2, 19, 150, 1000)  # classes

TRAINING = {
    "lovasz_bin_counts": [_maps_of_training(c, 4096) for c in SMALL_TYPICAL_LARGE],
    "lovasz_bin_gradient": [
        _maps_of_training(c, torch.empty(1, c, 2, 4096, device="meta")) for c in SMALL_TYPICAL_LARGE
    ],
}
