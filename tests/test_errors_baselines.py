"""Bad input to the baselines gets a sentence."""

import pytest
import torch

import evalgrad as eg

LOGITS, TARGET = torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.long)


def bootstrapped(logits=LOGITS, target=TARGET, **options):
    return eg.bootstrapped_cross_entropy(logits, target, **options)


def jaccard(logits=LOGITS, target=TARGET, **options):
    return eg.soft_jaccard_loss(logits, target, **options)


def median(targets=TARGET, num_classes=3, **options):
    return eg.median_frequency_weights(targets, num_classes=num_classes, **options)


BAD = (
    (
        lambda: bootstrapped(k=0),
        ValueError,
        "`k` must be finite and above 0; got 0. Pass a number of pixels",
    ),
    (lambda: bootstrapped(k=1.5), ValueError, "`k` must be an integer or at most 1.0; got 1.5"),
    (lambda: bootstrapped(k=True), TypeError, "`k` must be a number; got True"),
    (
        lambda: bootstrapped(threshold=1.0),
        ValueError,
        "`threshold` must be finite and above 0 and below 1; got 1.0. It is a probability",
    ),
    (lambda: bootstrapped(threshold=-0.5), ValueError, "`threshold` must be finite and above 0"),
    (lambda: bootstrapped(target=TARGET + 3), ValueError, r"labels in \[0, 2\]; got the label 3"),
    (lambda: bootstrapped(weight=torch.ones(2)), ValueError, r"`weight` must be of shape \(3,\)"),
    (lambda: bootstrapped(reduction=None), ValueError, "`reduction` must be one of"),
    (
        lambda: eg.BootstrappedCrossEntropy(per_image=0),
        TypeError,
        "`per_image` must be True or False; got 0",
    ),
    (
        lambda: jaccard(classes="most"),
        ValueError,
        "soft_jaccard_loss: `classes` must be one of 'present', 'all'; got 'most'",
    ),
    (lambda: jaccard(classes=[3]), ValueError, r"`classes` must be in \[0, 2\]; got 3"),
    (lambda: jaccard(LOGITS[:, :0]), ValueError, r"`logits` must be \(N, C, \*\) with C >= 2"),
    (
        lambda: jaccard(target=TARGET.float()),
        TypeError,
        "`target` must be an integer or bool tensor",
    ),
    (
        lambda: eg.SoftJaccardLoss(ignore_index=1.0),
        TypeError,
        "`ignore_index` must be an integer; got 1.0",
    ),
    (lambda: median(num_classes=0), ValueError, "`num_classes` must be at least 1; got 0"),
    (
        lambda: median(TARGET.float()),
        TypeError,
        "`targets` must be an integer or bool tensor of labels",
    ),
    (
        lambda: median(TARGET + 5),
        ValueError,
        r"`targets` must be labels in \[0, 2\]; got the label 5",
    ),
    (
        lambda: median([torch.tensor(1)]),
        ValueError,
        r"`targets` must be \(N, \*\); got .* shape \(\)\. .* `target.unsqueeze\(0\)`",
    ),
    (
        lambda: median([]),
        ValueError,
        "`targets` must be labels with at least one pixel that is not ignored; got none",
    ),
    (
        lambda: eg.inverse_frequency_weights(TARGET, num_classes=1, ignore_index=0),
        ValueError,
        "Check `ignore_index`",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()
