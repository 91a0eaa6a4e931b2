"""Bad input to the top-k family gets a sentence that names the function, the argument, what came
and the repair.
"""

import pytest
import torch

import evalgrad as eg
from evalgrad import metrics

SCORES, TARGET = torch.zeros(2, 10, 4), torch.zeros(2, 4, dtype=torch.long)
CROPS = torch.zeros(3, 10)


def smooth(scores=SCORES, target=TARGET, **options):
    return eg.smooth_topk_loss(scores, target, **options)


def hinge(scores=SCORES, target=TARGET, **options):
    return eg.topk_hinge_loss(scores, target, **options)


def error(scores=SCORES, target=TARGET, **options):
    return metrics.topk_error(scores, target, **options)


BAD = (
    (
        lambda: smooth(k=0),
        ValueError,
        "smooth_topk_loss: `k` must be at least 1; got 0. k is the number of guesses",
    ),
    (lambda: smooth(k=-1), ValueError, "`k` must be at least 1; got -1"),
    (
        lambda: smooth(k=10),
        ValueError,
        r"`k` must be in \[1, 9\]; got 10. There are 10 classes in dim 1, so 10 guesses are",
    ),
    (lambda: smooth(k=2.0), TypeError, "`k` must be an integer; got 2.0"),
    (lambda: smooth(k=True), TypeError, "`k` must be an integer; got True"),
    (lambda: smooth(SCORES[:, :2], k=2), ValueError, r"`k` must be in \[1, 1\]; got 2"),
    (lambda: smooth(SCORES[:, :1], k=1), ValueError, r"`scores` must be \(N, C, \*\) with C >= 2"),
    (
        lambda: smooth(temperature=0.0),
        ValueError,
        "`temperature` must be finite and above 0; got 0.0. 1.0 is smooth",
    ),
    (
        lambda: smooth(temperature=-1),
        ValueError,
        "`temperature` must be finite and above 0; got -1",
    ),
    (
        lambda: smooth(temperature=float("inf")),
        ValueError,
        "`temperature` must be finite and above 0; got inf",
    ),
    (
        lambda: smooth(temperature=float("nan")),
        ValueError,
        "`temperature` must be finite and above 0; got nan",
    ),
    (lambda: smooth(temperature="1"), TypeError, "`temperature` must be a number; got '1'"),
    (
        lambda: smooth(margin=-0.5),
        ValueError,
        "`margin` must be finite and at least 0; got -0.5. The paper uses 1",
    ),
    (lambda: smooth(margin=None), TypeError, "`margin` must be a number; got None"),
    (lambda: smooth(ignore_index=0.0), TypeError, "`ignore_index` must be an integer; got 0.0"),
    (lambda: smooth(weight=torch.ones(9)), ValueError, r"`weight` must be of shape \(10,\)"),
    (lambda: smooth(weight=-torch.ones(10)), ValueError, "`weight` must be finite and at least 0"),
    (
        lambda: smooth(reduction="avg"),
        ValueError,
        "`reduction` must be one of 'mean', 'sum', 'none'; got 'avg'",
    ),
    (
        lambda: smooth(SCORES.long()),
        TypeError,
        "`scores` must be a floating-point tensor; got an int64 tensor",
    ),
    (
        lambda: smooth(SCORES[0, 0, 0], TARGET[0, 0]),
        ValueError,
        "`scores` must be a tensor with at least 1 dimension",
    ),
    (
        lambda: smooth(target=TARGET.float()),
        TypeError,
        "`target` must be an integer or bool tensor .* soft targets",
    ),
    (lambda: smooth(target=TARGET[:, :3]), ValueError, r"`target` must be of shape \(2, 4\)"),
    (
        lambda: smooth(target=TARGET + 10),
        ValueError,
        r"labels in \[0, 9\]; got the label 10. .* ignore_index=10",
    ),
    (lambda: smooth(target=TARGET - 1), ValueError, "got the label -1"),
    (
        lambda: smooth(target=TARGET.to("meta")),
        ValueError,
        "`target` must be on cpu; got a tensor on meta",
    ),
    (lambda: eg.SmoothTopKLoss(k=0), ValueError, "smooth_topk_loss: `k` must be at least 1"),
    (
        lambda: eg.SmoothTopKLoss(temperature=0),
        ValueError,
        "`temperature` must be finite and above 0",
    ),
    (lambda: hinge(k=10), ValueError, r"topk_hinge_loss: `k` must be in \[1, 9\]"),
    (
        lambda: hinge(margin=-1),
        ValueError,
        "topk_hinge_loss: `margin` must be finite and at least 0",
    ),
    (
        lambda: hinge(target=TARGET + 10),
        ValueError,
        r"topk_hinge_loss: `target` must be labels in \[0, 9\]",
    ),
    (
        lambda: eg.TopKHingeLoss(reduction="avg"),
        ValueError,
        "topk_hinge_loss: `reduction` must be one of",
    ),
    (
        lambda: eg.log_elementary_symmetric(CROPS, k=0),
        ValueError,
        r"`k` must be in \[1, 10\]; got 0. There are only 10 items",
    ),
    (
        lambda: eg.log_elementary_symmetric(CROPS, k=11),
        ValueError,
        "log_elementary_symmetric: `k` must be in",
    ),
    (
        lambda: eg.log_elementary_symmetric(CROPS.long(), k=2),
        TypeError,
        "`x` must be a floating-point tensor",
    ),
    (
        lambda: eg.topk_probabilities(CROPS, k=11),
        ValueError,
        r"topk_probabilities: `k` must be in \[1, 10\]; got 11",
    ),
    (
        lambda: eg.topk_probabilities(CROPS, k=2, temperature=0),
        ValueError,
        "topk_probabilities: `temperature` must be finite",
    ),
    (
        lambda: eg.topk_predict(CROPS, k=2, crop_dim=-1),
        ValueError,
        r"topk_predict: `crop_dim` must be a dimension in \[0, 0\]; got -1",
    ),
    (
        lambda: eg.topk_predict(CROPS[:0], k=2, crop_dim=0),
        ValueError,
        "topk_predict: `scores` must be one crop or more",
    ),
    (lambda: error(k=11), ValueError, r"topk_error: `k` must be in \[1, 10\]; got 11"),
    (
        lambda: error(target=TARGET + 10),
        ValueError,
        r"topk_error: `target` must be labels in \[0, 9\]",
    ),
    (
        lambda: error(SCORES.long()),
        TypeError,
        "topk_error: `scores` must be a floating-point tensor",
    ),
)


@pytest.mark.parametrize(
    ("call", "error", "message"), BAD, ids=[message[:60] for _, _, message in BAD]
)
def test_message(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_labels_to_ignore_may_be_out_of_range():
    assert smooth(target=TARGET - 100, ignore_index=-100) == 0
    assert hinge(target=TARGET + 255, ignore_index=255) == 0


def test_weights_may_not_make_nothing_count():
    """All the samples of weight 0: as if absent, 0 and not 0/0."""
    weight = torch.ones(10)
    weight[0] = 0
    scores = SCORES.clone().requires_grad_()
    value = smooth(scores, weight=weight)
    value.backward()
    assert value == 0
    assert (scores.grad == 0).all()
