"""What is particular to the Lovász family: bins, prox, exhaustive small cases, large counts,
confident networks.
"""

import itertools
import math

import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evalgrad as eg
from evalgrad import _labels, _native
from evalgrad.lovasz import softmax_bins


def test_extension_equals_jaccard_loss_on_every_set():
    for n in range(1, 6):
        for foreground in itertools.product([False, True], repeat=n):
            sets = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=torch.float64)
            front = torch.tensor(foreground).expand(len(sets), n)
            expected = [
                oracles.jaccard_loss([bool(e) for e in row], foreground) for row in sets.tolist()
            ]
            torch.testing.assert_close(
                eg.jaccard_lovasz_extension(sets, front),
                torch.tensor(expected, dtype=torch.float64),
            )


def test_extension_of_any_real_errors():
    """The extension is defined for negative errors too; the kernel sorts them as floats, not as
    magnitudes.
    """
    errors = torch.randn(50, 7, dtype=torch.float64)
    foreground = torch.rand(50, 7) > 0.5
    expected = torch.tensor(
        [oracles.extension(e, f) for e, f in zip(errors.tolist(), foreground.tolist())],
        dtype=torch.float64,
    )
    torch.testing.assert_close(eg.jaccard_lovasz_extension(errors, foreground), expected)
    torch.testing.assert_close(
        eg.jaccard_lovasz_extension(errors.float(), foreground).double(),
        expected,
        rtol=1e-5,
        atol=1e-6,
    )


def test_extension_takes_a_mask():
    errors, foreground = torch.tensor([1.0, torch.nan, 0.5]), torch.tensor([True, True, False])
    mask = torch.tensor([True, False, True])
    value = eg.jaccard_lovasz_extension(errors, foreground, mask=mask)
    assert value == eg.jaccard_lovasz_extension(errors[mask], foreground[mask])


def background_weights(n=300_000, extension=eg.jaccard_lovasz_extension, dtype=torch.float32):
    """Gradient of the extension on the background, for errors that mix both kinds."""
    generator = torch.Generator().manual_seed(1)
    errors = torch.rand(n, generator=generator).to(dtype).requires_grad_()
    foreground = torch.rand(n, generator=generator) < 0.3
    extension(errors, foreground).backward()
    return errors.grad[~foreground].double()


def check_background_digits(extension):
    exact = background_weights(dtype=torch.float64)
    error = (background_weights(extension=extension) - exact).abs() / exact.clamp(min=1e-30)
    assert error.median() < 1e-6


@pytest.mark.parametrize("wrong", [2, -1, 2**40])
def test_one_wrong_label_among_many_is_found(wrong):
    """The labels of a hinge are narrowed in parts, by several threads."""
    target = torch.randint(2, (3, 300, 301))
    for order in (target, target.transpose(1, 2)):
        whole, narrow = (
            eg.lovasz_hinge_loss(torch.ones(order.shape), t, reduction="none")
            for t in (order, order == 1)
        )
        assert whole.equal(narrow)
    target[2, -1, -1] = wrong
    with pytest.raises(ValueError, match=f"got the label {wrong}"):
        eg.lovasz_hinge_loss(torch.zeros(target.shape), target)


def test_background_gradients_keep_their_digits():
    check_background_digits(eg.jaccard_lovasz_extension)


def test_counts_beyond_float32():
    """float32 counts to 2^24 only; a weight behind 2^24 + 64 background items must still be
    right.
    """
    background = 2**24 + 64
    errors = torch.ones(background + 1)
    errors[-1] = 0.5
    errors.requires_grad_()
    foreground = torch.zeros(background + 1, dtype=torch.bool)
    foreground[-1] = True
    eg.jaccard_lovasz_extension(errors, foreground).backward()
    assert errors.grad[-1].item() == pytest.approx(1 / (background + 1), rel=2e-7)


@pytest.mark.parametrize("confidence", [0, 3, 8, 20, 60])
@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("bins", [None, 512])
def test_kernel_at_size(confidence, per_image, bins):
    """Thousands of pixels from an untrained to a saturated network: every branch of the kernel
    against float64.
    """
    target = torch.randint(5, (2, 60, 70))
    target[:, :10] = 255
    logits = (1 + 0.2 * confidence) * torch.randn(2, 6, 60, 70)
    logits += confidence * torch.nn.functional.one_hot(target % 51, 6).movedim(-1, 1)
    results = []
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype, copy=True).requires_grad_()
        value = eg.lovasz_softmax_loss(
            x, target, ignore_index=255, per_image=per_image, classes="all", bins=bins
        )
        value.backward()
        results.append((value.double(), x.grad.double() / x.grad.abs().max()))
    (value, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    # A float32 error can fall on the other side of a bin border than its float64 twin.
    torch.testing.assert_close(
        gradient, expected_gradient, rtol=0, atol=2e-5 if bins is None else 0.02
    )


@pytest.mark.parametrize("metric", ["jaccard", "dice"])
@pytest.mark.parametrize("bins", [None, 32])
@pytest.mark.parametrize("classes", [8, 9, 19])
def test_parts_of_the_classes(classes, bins, metric):
    """The core in torch takes some classes at a time: their losses are those of each by itself."""
    logits = torch.randn(2, classes, 40, dtype=torch.float64, requires_grad=True)
    target = torch.randint(-1, classes, (2, 40))
    options = {"classes": "all", "ignore_index": -1, "bins": bins, "metric": metric}
    by_class = eg.lovasz_softmax_loss(logits, target, reduction="none", **options)
    (expected,) = torch.autograd.grad(by_class.mean(), logits)
    value = eg.lovasz_softmax_loss(logits, target, **options)
    value.backward()
    torch.testing.assert_close(value, by_class.mean())
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("confidence", [0, 3, 20])
@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize(("outlier", "bins"), [(0.0, None), (1e5, None), (0.0, 512)])
def test_hinge_kernel_at_size(confidence, per_image, outlier, bins):
    """Thousands of margins, compared in units of their spread or in bins; an outlier must not make
    the units coarse.
    """
    target = torch.randint(2, (2, 60, 90))
    logits = (1 + 0.2 * confidence) * torch.randn(2, 60, 90) + confidence * (2 * target - 1)
    logits[:, 20, 30] += outlier
    target[:, :10], logits[:, :5] = 255, torch.nan
    results = []
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype, copy=True).requires_grad_()
        value = eg.lovasz_hinge_loss(x, target, ignore_index=255, per_image=per_image, bins=bins)
        value.backward()
        results.append((value.double(), x.grad.double()))
    (value, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    # Two margins may be a unit apart, and swap, or on two sides of the border of a bin.
    assert (gradient - expected_gradient).norm() <= (
        1e-4 if bins is None else 1e-3
    ) * expected_gradient.norm()


@pytest.mark.parametrize("ignore_index", [None, 255, -100, 0, 1])
@pytest.mark.parametrize("pixels", [1, 300, 70_001])
def test_labels_are_looked_at_and_narrowed(ignore_index, pixels):
    target = torch.randint(2, (2, pixels))
    if ignore_index is not None:
        target[0, ::3] = ignore_index
    labels = _labels.binary_labels("loss", target, ignore_index=ignore_index)
    if _native.library is not None:  # in one pass
        assert _labels._narrowed(target, ignore_index).positive.equal(labels.positive)
    counts = torch.ones_like(labels.positive) if ignore_index is None else target != ignore_index
    mask = counts if labels.mask is None else labels.mask
    assert mask.equal(counts)
    assert labels.positive[counts].equal((target == 1)[counts])
    for wrong in (2, -1, 2**40):
        target[1, -1] = wrong
        with pytest.raises(ValueError, match=f"the label {wrong}"):
            _labels.binary_labels("loss", target, ignore_index=ignore_index)
    target[0] = 0
    ignoring = _labels.binary_labels("loss", target, ignore_index=wrong)  # it may be anything
    assert not ignoring.mask[1, -1]


@pytest.mark.parametrize("ignore_index", [None, 255, -100, 0, 2])
@pytest.mark.parametrize("pixels", [0, 1, 300, 70_001])
def test_classes_are_counted(engine, ignore_index, pixels):
    target = torch.randint(5, (3, pixels))
    if ignore_index is not None and pixels:
        target[0, ::3] = ignore_index
    label, counts, invalid, complete = _labels.class_labels("loss", target, 5, ignore_index)
    ignored = torch.zeros_like(target, dtype=torch.bool)
    if ignore_index is not None:
        ignored = target == ignore_index
    assert label.equal(target.masked_fill(ignored, -1))
    assert counts.equal(torch.stack([((label == c).sum(1)) for c in range(5)], 1))
    assert invalid is None
    assert not complete or not ignored.any()
    for wrong in (5, -1, -2, 2**40) if pixels else ():
        target[1, -1] = wrong
        with pytest.raises(ValueError, match=f"the label {wrong}"):
            _labels.class_labels("loss", target, 5, ignore_index)


@given(seed=st.integers(0, 2**32 - 1), bins=st.sampled_from([1, 2, 7, 64, 4096]), few=st.booleans())
def test_bins_are_within_the_widest_bin(seed, bins, few):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 3, 200, generator=generator, dtype=torch.float64)
    target = (torch.rand(2, 200, generator=generator) < (0.01 if few else 0.4)).long()
    exact = eg.lovasz_softmax_loss(logits, target, classes="all", reduction="none")
    for x in (logits, logits.float()):
        binned = eg.lovasz_softmax_loss(x, target, classes="all", reduction="none", bins=bins)
        assert (binned.double() - exact).abs().max() <= 1 / bins + 1e-5
        mean = eg.lovasz_softmax_loss(x, target, classes="all", bins=bins)
        torch.testing.assert_close(mean, binned.mean(), rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), bins=st.sampled_from([1, 2, 7, 64, 4096]), few=st.booleans())
def test_bins_of_the_hinge_are_within_the_widest_bin(seed, bins, few):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 200, generator=generator, dtype=torch.float64)
    target = torch.rand(2, 200, generator=generator) < (0.01 if few else 0.4)
    exact = eg.lovasz_hinge_loss(logits, target, reduction="none")
    largest = (1 - torch.where(target, logits, -logits)).amax(-1)
    for x in (logits, logits.float()):
        binned = eg.lovasz_hinge_loss(x, target, reduction="none", bins=bins)
        assert ((binned.double() - exact).abs() <= largest / bins + 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bins_of_the_hinge_at_the_edges(dtype):
    def gradient(*logits: float, first: bool = True) -> tuple[float, list[float]]:
        x = torch.tensor([logits], dtype=dtype, requires_grad=True)
        value = eg.lovasz_hinge_loss(x, torch.tensor([[first, False, False]]), bins=8)
        value.backward()
        return value.item(), x.grad[0].tolist()

    assert gradient(1, -1, -7) == (0, [0, 0, 0])  # all right: no loss to make bins of
    # the foreground has no loss and no bin, but counts
    assert gradient(1, 1, -2) == (1, [0, 0.5, 0])
    # no foreground: the largest losses, which share a bin
    assert gradient(1, 0.75, -3, first=False) == (1.875, [0.5, 0.5, 0])
    assert gradient(-math.inf, 1, -2)[0] == math.inf
    assert gradient(-math.inf, 1, -2)[1][0] == -1
    assert math.isnan(gradient(0, math.nan, 2)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [None, 8])
@pytest.mark.parametrize("scores", [math.inf, math.nan])
def test_a_skipped_image_is_left_out_whatever_it_holds(dtype, bins, scores):
    logits = torch.tensor([[scores, 0.0], [0.5, -1.0]], dtype=dtype, requires_grad=True)
    value = eg.lovasz_hinge_loss(logits, torch.tensor([[0, 0], [1, 0]]), empty="skip", bins=bins)
    value.backward()
    assert value == 0.5
    assert logits.grad.tolist() == [[0, 0], [-1, 0]]


LARGEST = 2**20  # bins; beside 1024 classes no 32 bits number them


def many_classes(dtype=torch.float32):
    return torch.randn(1, 1024, 3, dtype=dtype), torch.tensor([[5, 1023, 5]])


@pytest.mark.skipif(_native.library is None, reason="built without kernels")
def test_the_largest_number_of_bins_beside_many_classes():
    x, target = many_classes()
    exact, binned = (x.clone().requires_grad_() for _ in range(2))
    value, expected = (
        eg.lovasz_softmax_loss(z, target, bins=bins)
        for z, bins in ((binned, LARGEST), (exact, None))
    )
    value.backward()
    expected.backward()
    assert abs(value - expected) <= 2 / LARGEST
    torch.testing.assert_close(binned.grad, exact.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: eg.lovasz_softmax_loss(*many_classes(torch.float64), bins=LARGEST),
        lambda: eg.lovasz_softmax_loss(*many_classes(), bins=LARGEST, reduction="none"),
        lambda: softmax_bins.bin_counts(
            many_classes()[0].unsqueeze(0), many_classes()[1].unsqueeze(0), LARGEST
        ),
        lambda: eg.lovasz_hinge_loss(
            torch.randn(1024, 2).double(), torch.ones(1024, 2), bins=LARGEST
        ),
    ],
)
def test_more_bins_than_memory_holds_are_refused(call, engine):
    with pytest.raises(
        ValueError, match=r"`bins` must be at most .* classes or images; got 1048576"
    ):
        call()


@pytest.mark.parametrize("bits", [3, 20])
def test_many_bins_have_the_exact_gradient(bits):
    """And few have not: the two must be able to differ here."""
    logits, target = torch.randn(1, 4, 5000, dtype=torch.float64), torch.randint(4, (1, 5000))
    for loss, scores, labels in (
        (eg.lovasz_softmax_loss, logits, target),
        (eg.lovasz_hinge_loss, logits[:, 0], target == 0),
        (eg.lovasz_hinge_loss, logits[:, 0].float(), target == 0),
    ):
        exact, binned = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        loss(exact, labels).backward()
        loss(binned, labels, bins=2**bits).backward()
        assert ((binned.grad - exact.grad).norm() < 1e-3 * exact.grad.norm()) == (bits == 20)


def test_bin_counts_add_up_over_shards():
    """What the cheap global batch over ranks rests on."""
    x, label = torch.randn(1, 4, 3, 50), torch.randint(-1, 3, (1, 4, 50))
    whole = softmax_bins.bin_counts(x, label, 16)
    parts = [softmax_bins.bin_counts(x[:, i : i + 2], label[:, i : i + 2], 16) for i in (0, 2)]
    assert torch.equal(whole, parts[0] + parts[1])
    assert whole.sum() == 3 * (label >= 0).sum()


# ---- prox
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hinge", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_prox_equals_a_convex_solver(n, hinge):
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, generator=generator, dtype=torch.float64)
        foreground = torch.rand(n, generator=generator) > 0.4
        lam = [0.3, 1.0, 5.0][seed % 3]
        expected = torch.tensor(
            oracles.prox(x.tolist(), foreground.tolist(), lam, hinge), dtype=torch.float64
        )
        torch.testing.assert_close(
            eg.lovasz_prox(x, foreground, lam=lam, hinge=hinge), expected, rtol=0, atol=2e-5
        )


@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
def test_prox_kernel_equals_pure_torch(lam, monkeypatch):
    x, foreground, mask = (
        torch.randn(3, 80, dtype=torch.float64),
        torch.rand(3, 80) < 0.3,
        torch.rand(3, 80) < 0.9,
    )
    foreground[0] = False  # the prox of the largest error
    u = eg.lovasz_prox(x, foreground, lam=lam, mask=mask)
    monkeypatch.setattr(_native, "library", None)
    torch.testing.assert_close(
        eg.lovasz_prox(x, foreground, lam=lam, mask=mask), u, rtol=0, atol=1e-12
    )


def objective(u, x, foreground, lam):
    return eg.jaccard_lovasz_extension(u, foreground) + lam / 2 * (u - x).square().sum(-1)


def test_prox_beats_every_neighbour():
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(200, generator=generator, dtype=torch.float64).round(decimals=1 + seed % 2)
        foreground = torch.rand(200, generator=generator) < 0.3
        lam = 10.0 ** (seed % 5 - 2)
        u = eg.lovasz_prox(x, foreground, lam=lam)
        best = objective(u, x, foreground, lam)
        for size in (1e-1, 1e-3, 1e-5):
            moved = u + size * torch.randn(300, 200, generator=generator, dtype=torch.float64)
            assert (objective(moved, x, foreground.expand(300, 200), lam) >= best - 1e-12).all()


def test_prox_has_a_certificate():
    """lam (x - u) must be a subgradient at u: in the base polytope, and attaining the value
    there.
    """
    x, foreground = torch.rand(500, dtype=torch.float64), torch.rand(500) < 0.2
    u = eg.lovasz_prox(x, foreground, lam=0.01)
    w = 0.01 * (x - u)
    assert w.sum().item() == pytest.approx(1, abs=1e-9)
    assert (w * u).sum().item() == pytest.approx(
        eg.jaccard_lovasz_extension(u, foreground).item(), abs=1e-9
    )


def test_prox_of_large_lam_stays_and_batches():
    x, foreground = torch.rand(2, 2, 30), torch.rand(2, 2, 30) < 0.5
    torch.testing.assert_close(eg.lovasz_prox(x, foreground, lam=1e9), x)
    rows = torch.stack(
        [eg.lovasz_prox(a, b, lam=0.5) for a, b in zip(x.flatten(0, 1), foreground.flatten(0, 1))]
    )
    torch.testing.assert_close(eg.lovasz_prox(x, foreground, lam=0.5).flatten(0, 1), rows)


def test_prox_mask_leaves_items_out():
    x, foreground = torch.rand(30, dtype=torch.float64), torch.rand(30) < 0.5
    mask = torch.rand(30) < 0.6
    spoiled = torch.where(mask, x, torch.nan)
    u = eg.lovasz_prox(spoiled, foreground, lam=0.5, mask=mask)
    torch.testing.assert_close(u[mask], eg.lovasz_prox(x[mask], foreground[mask], lam=0.5))
    assert u[~mask].isnan().all()


def test_training_with_the_prox():
    """Value unchanged, gradient in the margins lam (x - u)."""
    logits = torch.randn(2, 40, dtype=torch.float64, requires_grad=True)
    target = torch.randint(2, (2, 40))
    value = eg.lovasz_hinge_loss(logits, target, gradient="prox", lam=3.0, reduction="sum")
    value.backward()
    sign = 1 - 2.0 * target
    margin = 1 + sign * logits.detach()
    u = eg.lovasz_prox(margin, target == 1, lam=3.0, hinge=True)
    torch.testing.assert_close(value, eg.lovasz_hinge_loss(logits, target, reduction="sum"))
    torch.testing.assert_close(logits.grad, sign * 3.0 * (margin - u))


# ---- hard cases
# ------------------------------------------------------------------------------------------------


def test_image_without_foreground():
    logits = torch.tensor([[0.5, -3.0], [2.0, 0.0]])
    target = torch.tensor([[0, 0], [1, 0]])
    assert eg.lovasz_hinge_loss(logits, target, reduction="none")[0] == 1.5  # the largest error
    assert eg.lovasz_hinge_loss(logits, target, empty="skip") == eg.lovasz_hinge_loss(
        logits[1:], target[1:]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_infinite_logits_act_as_their_limit(dtype):
    """+inf: the class takes all; -inf: it is ruled out."""
    logits = torch.tensor(
        [[torch.inf, 0.0, 0.0], [0.0, 0.0, -torch.inf], [0.0, torch.inf, 1.0]], dtype=dtype
    ).T[None]
    near = logits.clamp(-1e4, 1e4).requires_grad_()
    logits.requires_grad_()
    target = torch.tensor([[0, 1, 0]])
    value, expected = eg.lovasz_softmax_loss(logits, target), eg.lovasz_softmax_loss(near, target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(v, x)[0] for v, x in ((value, logits), (expected, near)))
    )


def test_one_pixel():
    for dtype in (torch.float32, torch.float64):
        assert (
            eg.lovasz_softmax_loss(torch.zeros(1, 2, dtype=dtype), torch.zeros(1, dtype=torch.long))
            == 0.5
        )
        assert (
            eg.lovasz_hinge_loss(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=torch.long)) == 1
        )


def test_void_images_are_left_out_of_the_mean():
    logits, target = torch.randn(3, 4, 10), torch.randint(4, (3, 10))
    target[1] = 255
    kept = [0, 2]
    expected = eg.lovasz_softmax_loss(logits[kept], target[kept], per_image=True)
    torch.testing.assert_close(
        eg.lovasz_softmax_loss(logits, target, per_image=True, ignore_index=255), expected
    )


@pytest.mark.parametrize("bins", [None, 64])
@pytest.mark.parametrize("empty", ["max", "skip"])
def test_void_images_are_left_out_of_the_mean_of_the_hinge(empty, bins):
    logits, target = torch.randn(3, 10), torch.randint(2, (3, 10))
    target[:, 0] = 1
    target[1] = 255
    kept = [0, 2]
    expected = eg.lovasz_hinge_loss(logits[kept], target[kept], empty=empty, bins=bins)
    torch.testing.assert_close(
        eg.lovasz_hinge_loss(logits, target, ignore_index=255, empty=empty, bins=bins), expected
    )
