"""The way in: what users have is taken as it is. What would mean something else is refused:
`test_advice.py`.
"""

import numpy as np
import pytest
import torch
from signatures import CLASS_MAPS, RANKINGS, SAMPLES, names

import evalgrad as eg
from evalgrad import metrics

torch.manual_seed(0)
LOGITS, LABELS = torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8))
SCORES, BITS = torch.randn(4, 6, 6), torch.randint(2, (4, 6, 6))
LISTS, RELEVANT = torch.randn(3, 8), torch.tensor([[1, 0] * 4] * 3)


# ---- shapes that mean one thing ------------------------------------------------------------------


@pytest.mark.parametrize("loss", CLASS_MAPS, ids=names)
def test_class_maps_take_labels_with_a_channel(loss):
    assert loss(LOGITS, LABELS.unsqueeze(1)) == loss(LOGITS, LABELS)


@pytest.mark.parametrize("per_image", [True, False])
def test_the_hinge_takes_a_channel_on_either_side(per_image):
    expected = eg.lovasz_hinge_loss(SCORES, BITS, per_image=per_image)
    for logits, target in (
        (SCORES.unsqueeze(1), BITS),
        (SCORES, BITS.unsqueeze(1)),
        (SCORES.unsqueeze(1), BITS.unsqueeze(1)),
    ):
        assert eg.lovasz_hinge_loss(logits, target, per_image=per_image) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.bool])
def test_masks_of_zeros_and_ones_are_labels_of_any_dtype(dtype):
    assert eg.lovasz_hinge_loss(SCORES, BITS.to(dtype)) == eg.lovasz_hinge_loss(SCORES, BITS)
    for loss in RANKINGS:
        assert loss(LISTS, RELEVANT.to(dtype)) == loss(LISTS, RELEVANT)


@pytest.mark.parametrize("loss", SAMPLES, ids=names)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_unbatched_sample(loss, reduction):
    scores, target = torch.randn(9), torch.tensor(4)
    value = loss(scores, target, k=3, reduction=reduction)
    assert value.shape == ()
    assert value == loss(scores.unsqueeze(0), target.unsqueeze(0), k=3)
    assert metrics.topk_error(scores, target, k=9) == 0


@pytest.mark.parametrize("loss", RANKINGS, ids=names)
def test_the_axis_of_the_items(loss):
    """(batch, classes) is ranked per class by dim=0."""
    expected = loss(LISTS, RELEVANT, reduction="none")
    per_class = loss(LISTS.T, RELEVANT.T, dim=0, reduction="none")
    assert torch.equal(per_class, expected)
    x = LISTS.T.clone().requires_grad_()
    loss(x, RELEVANT.T, mask=RELEVANT.T >= 0, dim=0).backward()
    y = LISTS.clone().requires_grad_()
    loss(y, RELEVANT).backward()
    assert torch.equal(x.grad, y.grad.T)
    assert loss(LISTS.T.unsqueeze(-1), RELEVANT.T.unsqueeze(-1), dim=0) == loss(LISTS, RELEVANT)


def test_a_module_takes_the_mask_by_place_or_by_name():
    mask = torch.rand(LISTS.shape) < 0.7
    mask[:, :2] = True
    for function, module in (
        (eg.direct_average_precision_loss, eg.DirectAveragePrecisionLoss()),
        (eg.zero_one_hinge_loss, eg.ZeroOneHingeLoss()),
    ):
        expected = function(LISTS, RELEVANT, mask=mask)
        assert expected != function(LISTS, RELEVANT)
        assert module(LISTS, RELEVANT, mask) == module(LISTS, RELEVANT, mask=mask) == expected


def test_the_axis_of_a_module():
    loss = eg.DirectAveragePrecisionLoss(dim=0)
    assert loss(LISTS.T, RELEVANT.T) == eg.direct_average_precision_loss(LISTS, RELEVANT)


# ---- weights and options -------------------------------------------------------------------------


def test_weights_may_be_a_list():
    weight = [1.0, 2.0, 0.5]
    for loss, module in (
        (eg.lovasz_softmax_loss, eg.LovaszSoftmaxLoss),
        (eg.soft_jaccard_loss, eg.SoftJaccardLoss),
        (eg.bootstrapped_cross_entropy, eg.BootstrappedCrossEntropy),
    ):
        expected = loss(LOGITS, LABELS, weight=torch.tensor(weight))
        assert loss(LOGITS, LABELS, weight=weight) == expected
        assert module(weight=weight)(LOGITS, LABELS) == expected
        assert module(weight=weight).double().weight.dtype == torch.float64  # a buffer
    for bad in (["a", "b", "c"], object()):
        with pytest.raises(TypeError, match="`weight` must be a tensor or numbers"):
            eg.LovaszSoftmaxLoss(weight=bad)


def test_a_module_has_weights_of_its_own():
    given = torch.tensor([1.0, 2.0, 0.5])
    loss = eg.LovaszSoftmaxLoss(weight=given)
    expected = loss(LOGITS, LABELS)
    given.zero_()
    assert loss(LOGITS, LABELS) == expected > 0


def test_numbers_of_numpy_are_numbers():
    target = torch.where(LABELS == 1, 255, LABELS)
    options = {"ignore_index": np.int64(255), "bins": np.int32(8)}
    plain = {name: int(value) for name, value in options.items()}
    for loss in (eg.lovasz_softmax_loss, lambda *a, **o: eg.LovaszSoftmaxLoss(**o)(*a)):
        assert loss(LOGITS, target, **options) == loss(LOGITS, target, **plain)
    scores, labels = torch.randn(4, 9), torch.arange(4)
    numpy = eg.smooth_topk_loss(scores, labels, k=np.int64(2), temperature=np.float32(0.5))
    assert numpy == eg.smooth_topk_loss(scores, labels, k=2, temperature=0.5)
    hinge = eg.topk_hinge_loss(scores, labels, k=np.int64(2), margin=np.float32(0.5))
    assert hinge == eg.topk_hinge_loss(scores, labels, k=2, margin=0.5)


def test_modules_show_their_options():
    loss = eg.LovaszSoftmaxLoss(ignore_index=255, reduction="sum")
    assert (loss.ignore_index, loss.reduction, loss.classes, loss.weight) == (
        255,
        "sum",
        "present",
        None,
    )
    assert "ignore_index=255" in repr(loss)
    loss.ignore_index = 2  # as one may with torch's own losses
    assert loss(LOGITS, LABELS) == eg.lovasz_softmax_loss(
        LOGITS, LABELS, ignore_index=2, reduction="sum"
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(
    "loss", [eg.LovaszHingeLoss(), *CLASS_MAPS, *SAMPLES, *RANKINGS], ids=names
)
def test_torchscript_points_to_export(loss):
    name = getattr(loss, "__name__", type(loss).__name__)
    with pytest.raises(RuntimeError, match=rf"{name}: .*torch\.export"):
        torch.jit.script(loss)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_every_function_has_versions_of_its_own_in_the_compiler():
    """The compiler keeps at most 8 versions of one code."""
    torch.compiler.reset()
    losses = [*RANKINGS, metrics.average_precision]
    assert len(losses) > 8
    for loss in losses:
        compiled = torch.compile(loss, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(LISTS, RELEVANT), loss(LISTS, RELEVANT))


# ---- what is no tensor, or a special one ---------------------------------------------------------


def test_numpy_arrays_are_named_not_printed():
    target = np.zeros((2, 8, 8), dtype=np.int64)
    with pytest.raises(TypeError) as error:
        eg.lovasz_softmax_loss(LOGITS, target)
    assert str(error.value) == (
        "lovasz_softmax_loss: `target` must be a tensor; got an int64 numpy.ndarray of shape"
        " (2, 8, 8). Convert it with `torch.as_tensor(target)`."
    )
    eg.lovasz_softmax_loss(LOGITS, torch.as_tensor(target))
    with pytest.raises(TypeError, match=r"`logits` must be a tensor; got a float32 numpy\.ndarray"):
        eg.lovasz_softmax_loss(LOGITS.numpy(), LABELS)
    with pytest.raises(TypeError, match=r"got \[\[\[0, 0, .*\.\.\. \(list\)"):
        eg.lovasz_hinge_loss(SCORES, BITS.tolist())


def test_monai_tensors():
    data = pytest.importorskip("monai.data")
    x = data.MetaTensor(LOGITS.clone()).requires_grad_()
    value = eg.lovasz_softmax_loss(x, data.MetaTensor(LABELS))
    value.backward()
    assert type(value) is torch.Tensor
    assert value == eg.lovasz_softmax_loss(LOGITS, LABELS)
    with pytest.raises(ValueError, match="the label 7"):
        eg.lovasz_hinge_loss(LOGITS[:, 0], data.MetaTensor(LABELS + 5))


# ---- labels that cannot be read ------------------------------------------------------------------

UNREAD = [
    (eg.lovasz_softmax_loss, LOGITS, LABELS),
    (eg.soft_jaccard_loss, LOGITS, LABELS),
    (eg.focal_loss, LOGITS, LABELS),
    (eg.bootstrapped_cross_entropy, LOGITS, LABELS),
    (eg.smooth_topk_loss, torch.randn(4, 9), torch.arange(4)),
    (eg.topk_hinge_loss, torch.randn(4, 9), torch.arange(4)),
    (eg.lovasz_hinge_loss, SCORES, BITS),
    *((loss, LISTS, RELEVANT) for loss in RANKINGS if loss is not eg.direct_graded_ndcg_loss),
]  # to the graded loss 77 is a grade: tests/test_direct_graded.py


@pytest.mark.parametrize(
    ("loss", "scores", "target"), UNREAD, ids=lambda x: getattr(x, "__name__", "")
)
def test_an_undeclared_label_is_nan_where_it_cannot_be_read(loss, scores, target):
    """In eager mode it raises; under vmap, as under compile and on a GPU, it must not train."""
    for wrong in (77, -1):
        bad = target.clone()
        bad.view(-1)[-1] = wrong
        with pytest.raises(ValueError, match=f"the label {wrong}"):
            loss(scores, bad)
        traced = torch.vmap(loss)(scores.unsqueeze(0), bad.unsqueeze(0))
        assert traced.isnan().all()
        x = scores.clone().requires_grad_()
        torch.vmap(loss)(x.unsqueeze(0), bad.unsqueeze(0)).sum().backward()
        assert x.grad.isnan().any()
    right = torch.vmap(loss)(scores.unsqueeze(0), target.unsqueeze(0))
    torch.testing.assert_close(right[0], loss(scores, target))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(
    ("loss", "scores", "target"), UNREAD, ids=lambda x: getattr(x, "__name__", "")
)
def test_an_undeclared_label_is_nan_in_a_graph(loss, scores, target):
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    for wrong in (255, 77, -1):
        bad = target.clone()
        bad.view(-1)[-1] = wrong
        assert compiled(scores, bad).isnan().all()
    torch.testing.assert_close(compiled(scores, target), loss(scores, target))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_an_undeclared_label_is_nan_under_compile():
    """The kernel is what runs there."""
    target = BITS.clone()
    target[:, :2] = 255
    compiled = torch.compile(eg.lovasz_hinge_loss, fullgraph=True)
    assert compiled(SCORES, target).isnan()
    ignoring = torch.compile(
        lambda x, y: eg.lovasz_hinge_loss(x, y, ignore_index=255), fullgraph=True
    )
    expected = eg.lovasz_hinge_loss(SCORES, target, ignore_index=255)
    torch.testing.assert_close(ignoring(SCORES, target), expected)
    classes = LABELS.clone()
    classes[0, 0] = 255
    assert torch.compile(eg.lovasz_softmax_loss, fullgraph=True)(LOGITS, classes).isnan()
