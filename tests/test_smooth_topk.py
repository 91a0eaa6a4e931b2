"""Smooth top-k against its oracles in 60 digits, its limits, and the mathematics it promises."""

import math

import oracles_smooth_topk as topk_oracles
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import evalgrad as eg
from evalgrad import metrics
from evalgrad.smooth_topk import loss

INF, NAN = math.inf, math.nan
ENGINES = {"kernel": loss.smooth_topk, "torch": loss._pure}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
SHAPES = ((2, 1), (3, 2), (7, 3), (10, 9), (33, 5), (40, 10), (100, 99), (310, 50))
TEMPERATURES = (10.0, 1.0, 0.1, 0.01, 1e-4, 1e-36)
KINDS = ("unit", "huge", "ties", "equal", "peaked", "plateau")


def draw(kind, classes, k, temperature, seed=0):
    """Scores of one row: random, up to 1e4, with ties, all equal, a few far above the rest, a
    plateau behind the first k.
    """
    s = torch.randn(classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if kind == "huge":
        return (2e3 * s).clamp(-1e4, 1e4)
    if kind == "ties":
        return (2 * s).round()
    if kind == "equal":
        return torch.full_like(s, 3)
    if kind == "peaked":
        return s - 7 * k * min(temperature, 10) * (s < 1)
    return s if kind == "unit" else -7.0 * k * temperature * (torch.arange(classes) > k)


def row_loss(engine, x, y, k, temperature, margin=1.0):
    value, gradient = engine(
        x.unsqueeze(0), torch.tensor([y]), torch.ones(1, dtype=x.dtype), k, temperature, margin
    )
    return value[0].double(), gradient[0].double()


def check_row(engine, x, y, k, temperature, value_error=1e-6, gradient_error=1e-5, sum_error=2e-6):
    """The promise of one row: value to 1e-6 of max(1, value), gradient to 1e-5 of its maximum, sum
    0.
    """
    value, gradient = row_loss(engine, x, y, k, temperature)
    expected, slopes = topk_oracles.smooth_topk_row(
        x.tolist(), y, k, temperature, 1.0, brute=len(x) <= 10
    )
    slopes = torch.tensor(slopes, dtype=torch.float64)
    largest = slopes.abs().max().clamp(min=1e-30)
    assert abs(value - expected) <= value_error * max(1.0, expected)
    assert ((gradient - slopes).abs() <= gradient_error * largest).all()
    assert abs(gradient.sum()) <= sum_error * largest


@every_engine
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("classes", "k"), SHAPES)
def test_float32_is_exact_at_any_temperature(engine, classes, k, kind):
    for i, temperature in enumerate(
        TEMPERATURES if classes < 100 else TEMPERATURES[:: 5 if classes > 100 else 3]
    ):
        x = draw(kind, classes, k, temperature, seed=i).float()
        check_row(engine, x, i % classes, k, temperature)


@every_engine
@pytest.mark.parametrize(("classes", "k"), [(9, 5), (65, 1), (100, 16)])
def test_float64_is_exact_to_its_own_digits(engine, classes, k):
    for temperature in (10.0, 0.1, 1e-4):
        x = draw("unit", classes, k, temperature)
        check_row(engine, x, 1, k, temperature, 1e-13, 1e-13, 1e-12)


@every_engine
@pytest.mark.parametrize(("k", "temperature", "kind"), [(5, 0.1, "unit"), (50, 1e-36, "huge")])
def test_a_thousand_classes(engine, k, temperature, kind):
    check_row(engine, draw(kind, 1000, k, temperature).float(), 3, k, temperature)


@every_engine
@pytest.mark.parametrize(
    ("classes", "k"), [(100_000, 50), (20_000, 128), (3000, 129), (3000, 1500), (3000, 2999)]
)
def test_equal_scores_in_closed_form(engine, classes, k):
    """sigma_k/sigma_{k-1} of n equal items is (n - k + 1)/k; degrees and classes where the plain
    sums overflow.
    """
    value, gradient = row_loss(engine, torch.zeros(classes), 17, k, 1.0)
    ratio = (classes - k) / k
    assert value.item() == pytest.approx(math.log1p(math.e * ratio), rel=2e-6)
    slope = math.e * ratio / (1 + math.e * ratio) / k
    assert gradient[17].item() == pytest.approx(-slope, rel=1e-5)
    assert gradient[0].item() == pytest.approx(slope / (classes - 1), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "options",
    [{}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 3}, {"weighted": True}],
)
@pytest.mark.parametrize("shape", [(20, 2), (20, 7), (4, 7, 3, 2)])
def test_cross_entropy_is_a_special_case(shape, options, dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(shape, dtype=dtype, generator=generator),
        torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator),
    )
    options = dict(options)
    if options.pop("weighted", False):
        options["weight"] = torch.arange(1, shape[1] + 1, dtype=dtype)
    gradients = []
    losses = (
        F.cross_entropy,
        lambda *a, **o: eg.smooth_topk_loss(*a, k=1, temperature=1.0, margin=0.0, **o),
    )
    for function in losses:
        leaf = x.clone().requires_grad_()
        value = function(leaf, y, **options)
        value.sum().backward()
        gradients.append((value.detach(), leaf.grad))
    for expected, actual in zip(*gradients, strict=True):
        torch.testing.assert_close(
            actual,
            expected,
            rtol=1e-14 if dtype == torch.float64 else 2e-6,
            atol=1e-15 if dtype == torch.float64 else 1e-6,
        )


@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 8),
    temperature=st.floats(1e-3, 3),
    ties=st.booleans(),
)
def test_proposition_4_bounds_the_error(seed, k, temperature, ties):
    """L >= (1 - tau log k) Lambda_k, for each sample, with margin 1."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (
        3 * torch.randn(16, 9, dtype=torch.float64, generator=generator),
        torch.randint(9, (16,), generator=generator),
    )
    x = x.round() if ties else x
    losses = eg.smooth_topk_loss(x, y, k=k, temperature=temperature, reduction="none")
    errors = torch.stack([metrics.topk_error(a[None], b[None], k=k) for a, b in zip(x, y)])
    assert (losses >= (1 - temperature * math.log(k)) * errors - 1e-12).all()
    assert (eg.topk_hinge_loss(x, y, k=k, reduction="none") >= errors).all()


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 6))
def test_the_hinge_is_the_limit(seed, k):
    """|L - hinge| <= tau (log 2 + log of the number of subsets); the gradient too, where
    nothing is near a kink.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(5, 8, generator=generator), torch.randint(8, (5,), generator=generator)
    pairs = []
    for function in (
        eg.topk_hinge_loss,
        lambda *a, **o: eg.smooth_topk_loss(*a, temperature=1e-7, **o),
    ):
        leaf = x.clone().requires_grad_()
        value = function(leaf, y, k=k, margin=0.5, reduction="none")
        value.sum().backward()
        pairs.append((value.detach(), leaf.grad))
    torch.testing.assert_close(pairs[1][0], pairs[0][0], rtol=0, atol=1e-6)
    others = x.scatter(1, y[:, None], -INF).sort(descending=True).values
    clear = (others[:, :7].diff(dim=1).abs().min(1).values > 1e-4) & (
        (pairs[0][0] > 1e-4) | (pairs[0][0] == 0)
    )
    torch.testing.assert_close(pairs[1][1][clear], pairs[0][1][clear], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("pure")
def test_ties_share_the_gradient_of_the_hinge_without_kernels():
    test_ties_share_the_gradient_of_the_hinge()


def test_ties_share_the_gradient_of_the_hinge():
    """As in the limit of the smooth loss, whose gradient at ties is computed here too."""
    x, y = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0, 0.5]]), torch.tensor([5])
    expected = torch.tensor([[0.0, 1 / 9, 1 / 9, 1 / 9, 0.0, -1 / 3]])
    for function in (
        eg.topk_hinge_loss,
        lambda *a, **o: eg.smooth_topk_loss(*a, temperature=1e-5, **o),
    ):
        leaf = x.clone().requires_grad_()
        function(leaf, y, k=3).backward()
        torch.testing.assert_close(leaf.grad, expected)


@every_engine
@pytest.mark.parametrize(("classes", "k"), [(8, 2), (100, 2), (100, 5)])
def test_infinite_scores_act_as_their_limits(engine, classes, k):
    base = torch.randn(classes)

    def at(column, number):
        x = base.clone()
        x[column] = number
        return row_loss(engine, x, 1, k, 1.0)

    # another class ruled out, another class sure
    for infinite, large in ((-INF, -1e4), (INF, 1e4)):
        for actual, expected in zip(at(5, infinite), at(5, large), strict=True):
            torch.testing.assert_close(actual, expected)
    assert at(1, INF)[0] == 0
    assert (at(1, INF)[1] == 0).all()
    assert at(1, -INF)[0] == INF
    torch.testing.assert_close(at(1, -INF)[1], at(1, -1e4)[1])
    assert at(slice(2, None), -INF)[0] == 0  # fewer than k others
    value, gradient = at(slice(2, None), INF)
    assert value == INF
    torch.testing.assert_close(
        gradient[2:],
        torch.full((classes - 2,), 1 / k / (classes - 2), dtype=torch.float64),
        rtol=1e-5,
        atol=0,
    )
    assert at(slice(None), -INF)[0].isnan()  # as cross-entropy, nothing is left to compare


@every_engine
@pytest.mark.parametrize("column", [0, 1, 5, -1])
def test_nan_stays_in_its_row(engine, column):
    x, y, one = torch.randn(3, 100), torch.tensor([0, 1, 2]), torch.ones(3)
    plain = engine(x, y, one, 5, 1.0, 1.0)
    x[1, column] = NAN
    value, gradient = engine(x, y, one, 5, 1.0, 1.0)
    assert value[1].isnan()
    assert gradient[1].isnan().all()
    for actual, expected in zip((value, gradient), plain, strict=True):
        torch.testing.assert_close(actual[[0, 2]], expected[[0, 2]])


@every_engine
def test_a_label_that_nobody_could_check_gives_nan(engine):
    value, gradient = engine(
        torch.randn(3, 6), torch.tensor([0, 6, -1]), torch.ones(3), 2, 1.0, 1.0
    )
    assert value.isnan().tolist() == [False, True, True]
    assert gradient.isnan().all(1).tolist() == [False, True, True]


def test_two_classes_are_a_logistic_loss():
    x, y = torch.randn(50, 2, dtype=torch.float64), torch.randint(2, (50,))
    own, other = x.gather(1, y[:, None]), x.gather(1, 1 - y[:, None])
    expected = 0.3 * F.softplus((1 + other - own) / 0.3).squeeze(1)
    torch.testing.assert_close(
        eg.smooth_topk_loss(x, y, k=1, temperature=0.3, reduction="none"), expected
    )


def test_threads_share_large_inputs():
    """Beyond some milliseconds of work the kernel spreads its rows over threads, with the same
    bits.
    """
    scores, target = torch.randn(200, 20_000), torch.randint(20_000, (200,))
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        x = scores.clone().requires_grad_()
        eg.smooth_topk_loss(x, target).backward()
        results.append(x.grad)
    torch.set_num_threads(1)
    assert torch.equal(*results)
