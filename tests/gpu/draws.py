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


def _metric(draw):
    return draw(st.sampled_from([(1.0, 1.0), (0.5, 0.5), (0.7, 0.3)]))


def _factor(draw, rows):
    return torch.rand(rows, generator=draw(_generators())) * draw(st.sampled_from([0.0, 1.0]))


def _factor_and_bins(draw, x):
    return _factor(draw, (x.shape[0], x.shape[2])), *_bins(draw, x), *_metric(draw)


def _slopes(draw, x):
    shape = (x.shape[0], x.shape[2], 2, *_bins(draw, x))
    slopes = torch.rand(shape, generator=draw(_generators()))
    slopes[:, :, 1] *= -1  # on the foreground
    return (slopes,)


@st.composite
def rows(draw, extra=lambda draw, x: ()):
    """x (R, n), foreground, a mask or none, and what `extra` draws."""
    shape = draw(FEW), draw(PIXELS | st.just(1500))
    generator = draw(_generators())
    x = draw(st.sampled_from([0.3, 1.5])) * torch.randn(shape, generator=generator)
    foreground = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.8]))
    return x, foreground, draw(st.sampled_from([None, mask])), *extra(draw, x)


def _row_factor_and_bins(draw, x):
    return _factor(draw, x.shape[:1]), *_bins(draw, x), *_metric(draw)


@st.composite
def losses(draw):
    """Losses (R, n), a mask or none, p and support."""
    shape = draw(FEW), draw(PIXELS | st.just(5000))
    generator = draw(_generators())
    found = torch.randn(shape, generator=generator).mul(draw(st.sampled_from([0.1, 3.0]))).exp()
    if draw(st.booleans()):
        found = found.relu().sub(1).relu().mul(4).round()  # some equal, many 0
    mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.8]))
    p, support = draw(st.sampled_from([1.05, 1.3, 3.0])), draw(st.sampled_from([1e-3, 0.25, 1.0]))
    return found, draw(st.sampled_from([None, mask])), p, support


@st.composite
def samples(draw):
    """x (R, C), label (R,), factor (R,), k, temperature and margin."""
    rows, classes, generator = draw(FEW), draw(st.sampled_from([2, 5, 40, 70])), draw(_generators())
    x = draw(st.sampled_from([0.5, 5.0])) * torch.randn(rows, classes, generator=generator)
    x = x.round() if draw(st.booleans()) else x
    label = torch.randint(classes, (rows,), generator=generator)
    k = min(draw(st.integers(1, 5)), classes - 1)
    temperature = draw(st.sampled_from([1.0, 0.1, 1e-4]))
    return x, label, _factor(draw, (rows,)), k, temperature, draw(st.sampled_from([0.0, 1.0]))


@st.composite
def lists(draw):
    """Scores (R, n), labels, a mask or none, epsilon, sign, ndcg and k."""
    shape, generator = (draw(FEW), draw(st.sampled_from([1, 2, 5, 17, 40]))), draw(_generators())
    scores = torch.randn(shape, generator=generator)
    scores = (4 * scores).round() / 4 if draw(st.booleans()) else scores + 100
    target = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    mask = torch.rand(shape, generator=generator) < 0.8
    epsilon, sign = draw(st.sampled_from([0.01, 0.3, 5.0])), draw(st.sampled_from([1, -1]))
    ndcg, k = draw(st.sampled_from([(False, 0), (True, 0), (True, 1), (True, 6)]))
    return scores, target, draw(st.sampled_from([None, mask])), epsilon, sign, ndcg, k


@st.composite
def batches(draw):
    """Offsets (R, n), positives, weights (R, 2), surrogate, square and prior."""
    shape, generator = (draw(FEW), draw(PIXELS | st.just(5000))), draw(_generators())
    offset = draw(st.sampled_from([0.5, 20.0])) * torch.randn(shape, generator=generator)
    offset = offset.round() if draw(st.booleans()) else offset
    positive = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    square, prior = draw(st.sampled_from([(0.0, 0.0), (1.0, 0.0), (4.0, 3.5)]))
    weight = _factor(draw, (shape[0], 2))
    return offset, positive, weight, draw(st.integers(0, 3)), square, prior


@st.composite
def scored_data(draw):
    """Scores (n,), some not seen, positives, scales and thresholds (K,), due, surrogate."""
    items, rows, generator = draw(PIXELS | st.just(5000)), draw(FEW), draw(_generators())
    scores = torch.randn(items, generator=generator)
    scores[torch.rand(items, generator=generator) < draw(st.sampled_from([0.0, 0.3]))] = torch.nan
    positive = torch.rand(items, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    scale, threshold = torch.rand(2, rows, generator=generator) + 0.5
    return scores, positive, scale, threshold, torch.tensor(True), draw(st.integers(0, 3))


DRAWS = {
    "s_measure_errors": batches(),
    "s_measure_totals": scored_data(),
    "direct_ranking": lists(),
    "smooth_topk": samples(),
    "loss_max_pooling": losses(),
    "lovasz_softmax": class_maps(
        lambda draw, x: (_factor(draw, (x.shape[0], x.shape[2])), *_metric(draw))
    ),
    "lovasz_rows": rows(lambda draw, x: (_factor(draw, x.shape[:1]), True, *_metric(draw))),
    "lovasz_softmax_bins": class_maps(_factor_and_bins),
    "lovasz_hinge_bins": rows(_row_factor_and_bins),
    "lovasz_bin_counts": class_maps(_bins),
    "lovasz_bin_gradient": class_maps(_slopes),
}


def _maps_of_training(classes, *extra):
    """Empty tensors on the meta device: the compiler wants dtypes and sizes only."""
    x = torch.empty(1, 2, classes, 512 * 1024, device="meta")
    label = torch.empty(1, 2, 512 * 1024, dtype=torch.int64, device="meta")
    return x, label, *extra


SMALL_TYPICAL_LARGE = (2, 19, 150, 1000)  # classes


def _rows_of_training(*extra):
    x = torch.empty(8, 512 * 512, device="meta")
    flags = torch.empty(8, 512 * 512, dtype=torch.bool, device="meta")
    return [(x, flags, mask, torch.empty(8, device="meta"), *extra) for mask in (None, flags)]


def _samples_of_training(rows, classes, k):
    x, factor = torch.empty(rows, classes, device="meta"), torch.empty(rows, device="meta")
    return x, torch.empty(rows, dtype=torch.int64, device="meta"), factor, k, 1.0, 1.0


def _lists_of_training(rows, items, *options):
    scores = torch.empty(rows, items, device="meta")
    flags = torch.empty(rows, items, dtype=torch.bool, device="meta")
    return scores, flags, flags, 0.1, *options


def _batches_of_training(rows, items, surrogate, square):
    offset, weight = torch.empty(rows, items, device="meta"), torch.empty(rows, 2, device="meta")
    flags = torch.empty(rows, items, dtype=torch.bool, device="meta")
    return offset, flags, weight, surrogate, square, 3.5


def _data_of_training(rows, items, surrogate):
    scores, numbers = torch.empty(items, device="meta"), torch.empty(rows, device="meta")
    flags = torch.empty(items, dtype=torch.bool, device="meta")
    return scores, flags, numbers, numbers, torch.tensor(True), surrogate


TRAINING = {
    "s_measure_errors": [
        _batches_of_training(1, 64, 0, 1.0),
        *(_batches_of_training(10, 4096, surrogate, 0.0) for surrogate in range(4)),
        _batches_of_training(1, 2_000_000, 2, 1.0),
    ],
    "s_measure_totals": [
        _data_of_training(1, 500, 0),
        *(_data_of_training(10, 60_000, surrogate) for surrogate in range(4)),
    ],
    "direct_ranking": [
        _lists_of_training(*sizes, *options)
        for sizes in ((64, 20), (80, 2048), (1, 100_000))
        for options in ((1, False, 0), (-1, False, 0), (1, True, 10))
    ],
    "smooth_topk": [
        _samples_of_training(*sizes)
        for sizes in ((256, 10, 1), (256, 1000, 5), (64, 100_000, 5), (64, 524_288, 31))
    ],
    "loss_max_pooling": [(losses, mask, 1.3, 0.25) for losses, _, mask, *_ in _rows_of_training()],
    "lovasz_softmax": [
        _maps_of_training(c, torch.empty(1, c, device="meta"), 1.0, 1.0)
        for c in SMALL_TYPICAL_LARGE
    ],
    "lovasz_rows": _rows_of_training(True, 1.0, 1.0),
    "lovasz_softmax_bins": [
        _maps_of_training(c, torch.empty(1, c, device="meta"), 4096, 1.0, 1.0)
        for c in SMALL_TYPICAL_LARGE
    ],
    "lovasz_hinge_bins": _rows_of_training(4096, 1.0, 1.0),
    "lovasz_bin_counts": [_maps_of_training(c, 4096) for c in SMALL_TYPICAL_LARGE],
    "lovasz_bin_gradient": [
        _maps_of_training(c, torch.empty(1, c, 2, 4096, device="meta")) for c in SMALL_TYPICAL_LARGE
    ],
}
