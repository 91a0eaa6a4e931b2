"""Bad input gets a sentence that names the function, the argument, what came and the repair."""

import pytest
import torch

import evalgrad as eg
from evalgrad import metrics

LOGITS, TARGET = torch.zeros(2, 21, 4), torch.zeros(2, 4, dtype=torch.long)
SCORES, BITS = torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.long)
ERRORS, FRONT = torch.zeros(4), torch.zeros(4, dtype=torch.bool)


def softmax(logits=LOGITS, target=TARGET, **options):
    return eg.lovasz_softmax_loss(logits, target, **options)


def hinge(logits=SCORES, target=BITS, **options):
    return eg.lovasz_hinge_loss(logits, target, **options)


def index(prediction=TARGET, target=TARGET, num_classes=21, **options):
    return metrics.jaccard_index(prediction, target, num_classes=num_classes, **options)


BAD = (
    (
        lambda: softmax(LOGITS.long()),
        TypeError,
        "`logits` must be a floating-point tensor; got an int64 tensor of shape",
    ),
    (
        lambda: softmax(LOGITS[0, 0]),
        ValueError,
        "`logits` must be a tensor with at least 2 dimensions",
    ),
    (lambda: softmax(LOGITS[:, :0]), ValueError, r"`logits` must be \(N, C, \*\) with C >= 2"),
    (
        lambda: softmax(target=TARGET.float()),
        TypeError,
        "`target` must be an integer or bool tensor .* soft targets",
    ),
    (
        lambda: softmax(target=TARGET[:, :3]),
        ValueError,
        r"`target` must be of shape \(2, 4\); got an int64 tensor of shape \(2, 3\)",
    ),
    (
        lambda: softmax(target=TARGET.to("meta")),
        ValueError,
        "`target` must be on cpu; got a tensor on meta",
    ),
    (
        lambda: softmax(target=TARGET + 21),
        ValueError,
        r"labels in \[0, 20\]; got the label 21. .* ignore_index=21",
    ),
    (lambda: softmax(target=TARGET - 1), ValueError, "got the label -1"),
    (
        lambda: softmax(classes="presnet"),
        ValueError,
        "`classes` must be one of 'present', 'all'; got 'presnet'",
    ),
    (lambda: softmax(classes=[21]), ValueError, r"`classes` must be in \[0, 20\]; got 21"),
    (lambda: softmax(classes=[1.5]), TypeError, "`classes` must be an integer; got 1.5"),
    (lambda: softmax(per_image=1), TypeError, "`per_image` must be True or False; got 1"),
    (
        lambda: softmax(ignore_index="255"),
        TypeError,
        "`ignore_index` must be an integer; got '255'",
    ),
    (lambda: softmax(weight=torch.ones(20)), ValueError, r"`weight` must be of shape \(21,\)"),
    (lambda: softmax(weight=-torch.ones(21)), ValueError, "`weight` must be finite and at least 0"),
    (
        lambda: softmax(weight=torch.ones(21, dtype=torch.long)),
        TypeError,
        "`weight` must be a floating-point tensor",
    ),
    (lambda: softmax(bins=0), ValueError, r"`bins` must be in \[1, 1048576\]; got 0"),
    (lambda: softmax(bins=8.0), TypeError, "`bins` must be an integer; got 8.0"),
    (
        lambda: softmax(reduction="avg"),
        ValueError,
        "`reduction` must be one of 'mean', 'sum', 'none'; got 'avg'",
    ),
    (lambda: softmax(weight=2.0), ValueError, "`weight` must be one number per class; got 2.0"),
    (lambda: softmax(weight=torch.ones(())), ValueError, r"`weight` must be of shape \(21,\), one"),
    (lambda: eg.LovaszSoftmaxLoss(weight=2.0), ValueError, "`weight` must be one number per class"),
    (
        lambda: eg.LovaszSoftmaxLoss(weight=[1.0, -2.0]),
        ValueError,
        "`weight` must be finite and at least 0",
    ),
    (
        lambda: eg.LovaszSoftmaxLoss(weight=torch.ones(21, dtype=torch.long)),
        TypeError,
        "`weight` must be a floating-point tensor",
    ),
    (
        lambda: eg.LovaszSoftmaxLoss()(LOGITS, TARGET, reduction="none"),
        TypeError,
        "LovaszSoftmaxLoss: `reduction` must be set in the constructor; got 'none' in a call",
    ),
    (
        lambda: eg.LovaszSoftmaxLoss()(LOGITS, TARGET, ignore_index=255),
        TypeError,
        r"`ignore_index` must be set in .* Write LovaszSoftmaxLoss\(ignore_index=\.\.\.\)",
    ),
    (
        lambda: eg.LovaszSoftmaxLoss()(LOGITS, TARGET, torch.ones(21)),
        TypeError,
        "LovaszSoftmaxLoss: `inputs` must be logits and target; got 3 of them. Set options in",
    ),
    (
        lambda: eg.SoftDiceLoss()(LOGITS, LOGITS.softmax(1), TARGET > 0, mask=TARGET > 0),
        TypeError,
        "SoftDiceLoss: `mask` must be one mask; got one by place and one by name. Pass one of",
    ),
    (
        lambda: eg.loss_max_pooling(torch.tensor(0.7)),
        ValueError,
        '`losses` must be one loss per pixel; got .* Compute them with reduction="none"',
    ),
    (
        lambda: softmax(target=TARGET.float().unsqueeze(1)),
        TypeError,
        r"`target` must be an integer .* got a float32 tensor of shape \(2, 1, 4\)",
    ),
    (
        lambda: metrics.jaccard_from_counts(torch.ones(21, 3)),
        ValueError,
        r"`counts` must be \(G, C, 3\); got .* \(21, 3\)\. .* `counts.unsqueeze\(0\)`",
    ),
    (lambda: eg.LovaszSoftmaxLoss(reduction="avg"), ValueError, "`reduction` must be one of"),
    (
        lambda: hinge(target=BITS + torch.tensor([0, 1, 2, 2])),
        ValueError,
        "0 or 1, or bool; got the label 2. .* ignore_index=2",
    ),
    (lambda: hinge(target=BITS[0]), ValueError, "`target` must be of shape"),
    (
        lambda: hinge(ERRORS, FRONT, per_class=True),
        ValueError,
        "`logits` must be a tensor with at least 2 dimensions",
    ),
    (lambda: hinge(per_class="yes"), TypeError, "`per_class` must be True or False"),
    (lambda: hinge(empty="drop"), ValueError, "`empty` must be one of 'max', 'skip'"),
    (
        lambda: hinge(gradient="proximal"),
        ValueError,
        "`gradient` must be one of 'subgradient', 'prox'",
    ),
    (lambda: hinge(bins=0), ValueError, r"`bins` must be in \[1, 1048576\]; got 0"),
    (
        lambda: hinge(bins=8, gradient="prox"),
        ValueError,
        '`bins` must be None with gradient="prox"; got 8',
    ),
    (
        lambda: hinge(metric="dice", gradient="prox"),
        ValueError,
        '`metric` must be "jaccard" with gradient="prox"; got \'dice\'',
    ),
    (
        lambda: eg.LovaszHingeLoss(metric=eg.Tversky(2.0, 1.0), gradient="prox"),
        ValueError,
        r'"jaccard" with gradient="prox"; got Tversky\(misses=2.0, false_alarms=1.0\)',
    ),
    (
        lambda: softmax(metric="iou"),
        ValueError,
        "`metric` must be one of 'jaccard', 'dice'; got 'iou'",
    ),
    (
        lambda: hinge(metric=(0.7, 0.3)),
        TypeError,
        r'`metric` must be "jaccard", "dice" or a Tversky; got \(0.7, 0.3\)',
    ),
    (
        lambda: softmax(metric=eg.Tversky(misses=0, false_alarms=1)),
        ValueError,
        "`metric.misses` must be finite and at least 0.001 and at most 1000; got 0",
    ),
    (
        lambda: eg.LovaszSoftmaxLoss(metric=eg.Tversky(misses=1, false_alarms="1")),
        TypeError,
        "`metric.false_alarms` must be a number; got '1'",
    ),
    (
        lambda: metrics.tversky_index(TARGET, TARGET, num_classes=2, misses=1, false_alarms=-1),
        ValueError,
        "tversky_index: `false_alarms` must be finite and at least 0.001",
    ),
    (
        lambda: metrics.dice(TARGET, TARGET, num_classes=2, over="batch"),
        TypeError,
        "dice: `batch_size` must be an integer; got None",
    ),
    (lambda: hinge(lam=0), ValueError, "`lam` must be finite and above 0; got 0"),
    (lambda: hinge(lam=float("nan")), ValueError, "`lam` must be finite and above 0; got nan"),
    (lambda: hinge(lam="1"), TypeError, "`lam` must be a number; got '1'"),
    (lambda: eg.LovaszHingeLoss(lam=-1.0), ValueError, "`lam` must be finite and above 0"),
    (
        lambda: eg.jaccard_lovasz_extension(ERRORS, FRONT.long() + 2),
        ValueError,
        "`foreground` must be 0 or 1, or bool; got the label 2",
    ),
    (
        lambda: eg.jaccard_lovasz_extension(torch.rand(3, 5), None),
        TypeError,
        "`foreground` must be a tensor; got None",
    ),
    (
        lambda: eg.jaccard_lovasz_extension(ERRORS, FRONT[:3]),
        ValueError,
        r"`foreground` must be of shape \(4,\)",
    ),
    (
        lambda: eg.jaccard_lovasz_extension(ERRORS, FRONT, mask=FRONT.to("meta")),
        ValueError,
        "`mask` must be on cpu",
    ),
    (
        lambda: eg.lovasz_prox(ERRORS, FRONT, lam=0.0),
        ValueError,
        "lovasz_prox: `lam` must be finite and above 0",
    ),
    (lambda: index(over="epoch"), ValueError, "`over` must be one of 'dataset', 'batch', 'image'"),
    (lambda: index(over="batch"), TypeError, "`batch_size` must be an integer; got None"),
    (lambda: index(num_classes=0), ValueError, "`num_classes` must be at least 1"),
    (
        lambda: index(prediction=TARGET.float()),
        TypeError,
        "`prediction` must be an integer or bool tensor",
    ),
    (
        lambda: index(zero_division="warn"),
        TypeError,
        "`zero_division` must be a number; got 'warn'. Pass 0.0 or 1.0, or NaN",
    ),
    (lambda: index(zero_division=-1), ValueError, "`zero_division` must be finite and at least 0"),
    (lambda: index(classes=[21]), ValueError, r"`classes` must be in \[0, 20\]; got 21"),
    (lambda: index(classes="some"), ValueError, "`classes` must be one of 'present', 'all'"),
    (lambda: index(target=TARGET + 21), ValueError, r"labels in \[0, 20\]"),
    (
        lambda: index(prediction=TARGET + 21),
        ValueError,
        r"`prediction` must be labels in \[0, 20\]",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input_gets_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_no_check_forces_a_sync():
    """Under vmap the labels cannot be looked at: what would raise in eager mode is NaN, without
    touching foreign memory.
    """
    classes = torch.vmap(lambda x, y: eg.lovasz_softmax_loss(x, y))(
        LOGITS.expand(3, 2, 21, 4), (TARGET + 21).expand(3, 2, 4)
    )
    binary = torch.vmap(lambda x, y: eg.lovasz_hinge_loss(x, y))(
        SCORES.expand(3, 2, 4), (BITS + 2).expand(3, 2, 4)
    )
    assert classes.isnan().all()
    assert binary.isnan().all()
