"""Laws: what every loss of the table in `cases.py` promises. A new loss adds a row there and is
tested by all of this.
"""

import copy
import io
import pickle

import pytest
import torch
from cases import CASES, IGNORED
from hypothesis import given
from hypothesis import strategies as st

from evalgrad import _native

seeds = st.integers(0, 2**32 - 1)
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def drawn(case, seed):
    return case.draw(torch.Generator().manual_seed(seed))


def gradient(case, x, target, **options):
    x = x.detach().clone().requires_grad_()
    value = case(x, target, **options)
    value.sum().backward()
    return value.detach(), x.grad


def working(dtype):
    """The dtype that a loss is computed and returned in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def assert_close(actual, expected, tolerance):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


@every_case
@given(seed=seeds, options=st.integers(-1, 20))
def test_equals_oracle(case, seed, options):
    chosen = case.options[options % len(case.options)] if options >= 0 else {}
    x, target = drawn(case, seed)
    if isinstance(chosen.get("classes"), list) and x.shape[1] < 2:
        chosen = {}
    expected = case.expected(x, target, **chosen)
    assert_close(case(x, target, **chosen), expected, 1e-9)
    assert_close(case(x.float(), target, **chosen), expected, 2e-5 if "bins" not in chosen else 0.3)


@every_case
@given(seed=seeds)
def test_ties_have_one_value(case, seed):
    if not case.exact_ties:
        pytest.skip("its scores are rounded")
    x, target = drawn(case, seed)
    x = x.round()  # many equal errors
    assert_close(case(x, target), case.expected(x, target), 1e-9)
    assert_close(case(x.float(), target), case.expected(x, target), 2e-5)


@every_case
@given(seed=seeds)
def test_follows_metric_at_hard_predictions(case, seed):
    generator = torch.Generator().manual_seed(seed)
    _, target = drawn(case, seed)
    # not a permutation, which would have as many misses as false alarms
    labels = target.flatten()
    other = labels[torch.randint(target.numel(), (target.numel(),), generator=generator)]
    other[0] = labels.max()  # as many classes
    x = case.perfect(other.view_as(target))  # confident in some labelling, right or wrong
    loss, metric = case(x, target), case.metric(x, target)
    if case.equals_metric:
        assert_close(loss, metric, 1e-9)
    else:
        assert loss >= metric - 1e-9


@every_case
@given(seed=seeds)
def test_zero_at_perfect_prediction(case, seed):
    _, target = drawn(case, seed)
    x = case.perfect(target)
    for dtype in (torch.float64, torch.float32):
        value, grad = gradient(case, x.to(dtype), target)
        assert_close(value, torch.zeros(()), 1e-12)
        assert_close(grad, torch.zeros_like(x), 1e-12)


@every_case
@pytest.mark.parametrize("seed", range(4))
def test_gradcheck(case, seed):
    if case.piecewise_constant:
        pytest.skip(
            "the gradient is that of the expected loss: tests of the gradient theorem check it"
        )
    x, target = drawn(case, seed)
    # normal draws keep clear of ties and kinks by far more than gradcheck's step of 1e-6
    inputs = (x.requires_grad_(),)
    assert torch.autograd.gradcheck(lambda z: case(z, target), inputs)
    assert torch.autograd.gradcheck(lambda z: case(z, target, reduction="none"), inputs)


@every_case
@given(seed=seeds)
def test_float32_gradient_is_the_float64_gradient(case, seed):
    x, target = drawn(case, seed)
    value, grad = gradient(case, x.float(), target)
    expected, expected_grad = gradient(case, x.float().double(), target)
    assert_close(value, expected, 2e-6)
    assert_close(
        grad / grad.abs().max().clamp(min=1e-9),
        expected_grad / grad.abs().max().clamp(min=1e-9),
        2e-5,
    )


@every_case
@given(seed=seeds)
def test_order_of_items_does_not_matter(case, seed):
    x, target = drawn(case, seed)
    order = torch.randperm(x.shape[-1], generator=torch.Generator().manual_seed(seed))
    value, grad = gradient(case, x, target)
    permuted, permuted_grad = gradient(case, x[..., order], target[..., order])
    assert_close(permuted, value, 1e-12)
    assert_close(permuted_grad, grad[..., order], 1e-12)


@every_case
@pytest.mark.parametrize("garbage", [0.0, 1e4, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ignored_items_are_as_if_absent(case, garbage, dtype):
    x, target = drawn(case, 3)
    padded, labels = case.with_ignored(x, target, garbage)
    value, grad = gradient(case, x.to(dtype), target)
    padded_value, padded_grad = gradient(case, padded.to(dtype), labels, ignore_index=IGNORED)
    assert_close(padded_value, value, 1e-12 if dtype == torch.float64 else 1e-6)
    assert_close(padded_grad[..., :-2], grad, 1e-12 if dtype == torch.float64 else 1e-6)
    assert (padded_grad[..., -2:] == 0).all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["all ignored", "empty batch", "no items"])
def test_nothing_left(case, dtype, kind):
    x, target = drawn(case, 1)
    if kind == "all ignored":
        target = torch.full_like(target, IGNORED)
    else:
        x, target = (x[:0], target[:0]) if kind == "empty batch" else (x[..., :0], target[..., :0])
    value, grad = gradient(case, x.to(dtype), target, ignore_index=IGNORED)
    assert (value.dtype, grad.dtype) == (working(dtype), dtype)
    assert value.shape == ()
    assert value == 0
    assert (grad == 0).all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_float32_inside(case, dtype):
    x, target = drawn(case, 5)
    value, grad = gradient(case, x.to(dtype), target)
    expected, expected_grad = gradient(case, x.to(dtype).float(), target)
    assert (value.dtype, grad.dtype) == (torch.float32, dtype)
    assert torch.equal(value, expected)
    assert torch.equal(grad, expected_grad.to(dtype))


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_under_a_scaler(case, dtype):
    """As GradScaler starts, with 2^16: finite wherever the scaled gradient fits the dtype, and the
    small gradients that the scale is for arrive.
    """
    x, target = drawn(case, 5)
    exact = gradient(case, x.to(dtype).float(), target)[1]
    for scale in (2.0**16, 2.0**-20):
        half = x.to(dtype).requires_grad_()
        (case(half, target) * scale * 2.0**-3).backward()
        expected = (exact * scale * 2.0**-3).to(dtype)
        fits = expected.isfinite()
        assert torch.equal(half.grad[fits], expected[fits])
    half = x.to(dtype).requires_grad_()
    (case(half, target) * 2.0**-22 * 2.0**22).backward()
    assert torch.equal(half.grad, exact.to(dtype))


class Tagged(torch.Tensor):
    """What MONAI's MetaTensor and fastai's TensorImage are: a tensor with something to carry, which
    every operation hands on.
    """

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Tagged):
            result.tag = next((x.tag for x in args if hasattr(x, "tag")), None)
        return result

    def new_empty(self, size, **options):  # MetaTensor's takes a tuple only
        return super().new_empty(tuple(size), **options)


@every_case
def test_tensor_subclasses_are_tensors(case):
    x, target = drawn(case, 6)
    value, grad = gradient(case, x.float(), target)
    for kind in (Tagged, torch.nn.Parameter):
        scores = x.float().clone()
        scores = kind(scores) if kind is torch.nn.Parameter else scores.as_subclass(Tagged)
        scores.requires_grad_()
        labels = target.as_subclass(Tagged)
        got = case(scores, labels)
        got.backward()
        assert type(got) is torch.Tensor
        assert torch.equal(got, value)
        assert torch.equal(scores.grad.as_subclass(torch.Tensor), grad)
    if case.checks_labels:
        with pytest.raises(ValueError, match="the label"):
            case(x, (target + 77).as_subclass(Tagged))


@every_case
def test_uint8_labels_do_not_wrap(case):
    """In uint8 the label 156 is -100, and 255 is -1: neither is what ignore_index means."""
    x, target = drawn(case, 2)
    for ignore_index in (-100, -1):
        assert torch.equal(
            case(x, target.to(torch.uint8), ignore_index=ignore_index), case(x, target)
        )
        if case.has_ignore_index:
            wrapped = target.clone()
            wrapped.view(-1)[0] = ignore_index % 256
            with pytest.raises(ValueError, match=f"the label {ignore_index % 256}"):
                case(x, wrapped.to(torch.uint8), ignore_index=ignore_index)


UNDECLARED = 77


def with_undeclared(target):
    """One label that was not declared; a whole row of them; nothing else."""
    one, row = target.clone(), target.clone()
    one.view(-1)[-1] = row[0] = UNDECLARED
    return one, row, torch.full_like(target, UNDECLARED)


@every_case
@pytest.mark.parametrize("engine", ["kernel", "pure torch"])
def test_an_undeclared_label_is_nan_whatever_the_options(case, engine, monkeypatch):
    """Where labels cannot be read, as here under vmap. Neither a group without a single declared
    label hides it, nor losses of 0, nor a class weight of 0.
    """
    if not case.checks_labels:
        pytest.skip("the labels belong to a criterion")
    if engine == "pure torch":
        monkeypatch.setattr(_native, "library", None)
    x, target = drawn(case, 5)
    perfect = case.perfect(torch.zeros_like(target))  # no losses
    options = [{}, *case.options]
    if any("weight" in chosen for chosen in case.options):
        options += [{"weight": torch.zeros(6)}, {"weight": torch.tensor([0.0, 1, 1, 1, 1, 1])}]
    for chosen in options:
        for scores in (x.float(), perfect.float()):
            for labels in with_undeclared(target):
                leaf = scores.clone().requires_grad_()
                value = torch.vmap(lambda *a, o=chosen: case(*a, **o))(leaf[None], labels[None])
                assert value.isnan().any(), (chosen, labels)
                value.sum().backward()
                # autograd gives 0 to pixels that a `where` leaves out
                by_autograd = case.autograd or chosen.get("reduction") == "none"
                assert by_autograd or leaf.grad.isnan().any(), (chosen, labels)


@every_case
def test_a_channel_axis_of_one_changes_nothing(case):
    """Masks as loaders give them, (N, 1, *), beside scores (N, C, *) or (N, *)."""
    x, target = drawn(case, 2)
    if case.checks_labels:
        assert torch.equal(case(x, target.unsqueeze(1)), case(x, target))


@every_case
@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ],
)
def test_target_dtypes(case, dtype):
    x, target = drawn(case, 2)
    assert torch.equal(case(x, target.to(dtype)), case(x, target))


@every_case
def test_strides_do_not_matter(case):
    x, target = drawn(case, 2)
    strided = x.float().transpose(0, -1).contiguous().transpose(0, -1)
    labels = torch.stack([target, target], -1)[..., 0]
    assert torch.equal(case(strided, labels), case(x.float(), target))


@every_case
def test_more_axes_are_more_items(case):
    x, target = drawn(case, 2)
    if not case.axes_are_items:
        assert torch.equal(case(x.unsqueeze(1), target.unsqueeze(1)), case(x, target))
        return
    doubled = torch.stack([x, x], -1)
    labels = torch.stack([target, target], -1)
    assert_close(case(doubled, labels), case(doubled.flatten(-2), labels.flatten(-2)), 1e-12)


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_scores_stay_finite(case, dtype, scale):
    x, target = drawn(case, 4)
    value, grad = gradient(case, (scale * x).to(dtype), target)
    assert value.isfinite().all()
    assert grad.isfinite().all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nan_that_counts_propagates(case, dtype):
    x, target = drawn(case, 4)
    for i in range(x.numel()):
        spoiled = x.to(dtype).clone()
        spoiled.view(-1)[i] = torch.nan
        assert case(spoiled, target).isnan()


@every_case
def test_reductions_agree(case):
    for seed in range(5):
        x, target = drawn(case, seed)
        none = case(x, target, reduction="none")
        assert_close(none.sum(), case(x, target, reduction="sum"), 1e-12)


@every_case
def test_every_option_changes_something(case):
    for options in case.options:
        differs = False
        for seed in range(60):
            x, target = drawn(case, seed)
            if isinstance(options.get("classes"), list) and x.shape[1] < 2:
                continue
            plain, changed = gradient(case, x, target), gradient(case, x, target, **options)
            differs |= any(
                a.shape != b.shape or not torch.allclose(a, b)
                for a, b in zip(plain, changed, strict=True)
            )
        assert differs, options


@every_case
def test_module_is_the_function(case):
    x, target = drawn(case, 7)
    for options in ({}, *case.options):
        options = {
            k: v[: x.shape[1]] if isinstance(v, torch.Tensor) else v for k, v in options.items()
        }
        if isinstance(options.get("classes"), list) and x.shape[1] < 2:
            continue
        module = case.module(**{**case.fixed, **options})
        expected = case(x, target, **options)
        arranged = case.arrange(x, target)
        assert torch.equal(module(*arranged), expected)
        for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), _reloaded(module)):
            assert torch.equal(same(*arranged), expected)
        assert all(name in repr(module) for name in options if name != "weight")


def _reloaded(module):
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    fresh = copy.deepcopy(module)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    return fresh


@every_case
def test_backward_twice(case):
    """A gradient may be handed out without a copy; what a caller does to it must not reach the next
    call.
    """
    x, target = drawn(case, 5)
    x = x.float().requires_grad_()
    value = case(x, target)
    for times in range(1, 5):
        value.backward(retain_graph=True)
        if times == 1:
            once = x.grad.clone()
        assert torch.equal(x.grad, times * once)
    x.grad = None
    value = case(x, target)
    for last in (False, False, True):  # each writes into what the one before has handed out
        value.backward(retain_graph=not last)
        assert torch.equal(x.grad, once)
        x.grad.zero_()


@every_case
def test_gradient_is_scaled_by_what_follows(case):
    """Nothing to scale is the usual case, and the gradient handed out as it is; that of a weighted
    loss must not be.
    """
    x, target = drawn(case, 5)
    once = gradient(case, x.float(), target)[1]
    x = x.float().requires_grad_()
    (3 * case(x, target)).backward()
    assert_close(x.grad, 3 * once, 1e-6)


@every_case
def test_second_derivative_is_refused(case):
    if case.autograd:
        pytest.skip("ordinary autograd: it exists")
    x, target = drawn(case, 5)
    x = x.requires_grad_()
    (grad,) = torch.autograd.grad(case(x, target), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


@every_case
@given(seed=seeds)
def test_kernel_equals_pure_torch(case, seed):
    if _native.library is None:
        pytest.skip("built without kernels")
    x, target = drawn(case, seed)
    x = x.float()
    native = gradient(case, x, target)
    library, _native.library = _native.library, None
    try:
        pure = gradient(case, x, target)
    finally:
        _native.library = library
    assert_close(native[0], pure[0], 2e-6)
    assert_close(native[1], pure[1], 2e-6)


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_descent_improves_metric(case, dtype):
    generator = torch.Generator().manual_seed(0)
    x, target = case.draw(generator)
    while (target == target.flatten()[0]).all() or case.metric(x, target) == 0:
        x, target = case.draw(generator)
    before = case.metric(x, target)
    scores = x.to(dtype).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        # it descends the expected loss
        noise = torch.randn(x.shape, generator=generator) if case.piecewise_constant else 0.0
        case(scores + noise, target).backward()
        optimizer.step()
    assert case.metric(scores.detach(), target) < before
