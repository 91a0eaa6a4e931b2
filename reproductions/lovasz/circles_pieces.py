"""Section 4.1: every loss as a function of the bias, on one draw of the circles."""

from collections.abc import Callable

from torch import Tensor

import evalgrad as eg
from evalgrad_lab import loss_factories
from evalgrad_lab.data.embedded.circles import circles

BIASES = [round(-5 + 0.04 * step, 2) for step in range(151)]


def image_jaccard_loss(scores: Tensor, target: Tensor) -> Tensor:
    """1 - the mean IoU of the images, of the prediction scores > 0."""
    return 1 - eg.metrics.jaccard_index(
        (scores > 0).long(), target, num_classes=2, over="image", classes=[1]
    )


def balanced_cross_entropy(target: Tensor) -> Callable[..., Tensor]:
    """Cross-entropy in which all foreground together weighs as much as all background together."""
    return loss_factories.bce(positive_weight=float((target == 0).sum() / target.sum()))


def losses_of_bias(
    *, seed: int, radii: tuple[int, int], images: int, size: int
) -> dict[str, list[float]]:
    """A piece: each loss of the scores f + b, for every bias b."""
    part = circles(seed, images=images, size=size, radii=(radii[0], radii[1])).train
    losses: dict[str, Callable[..., Tensor]] = {
        "Jaccard": image_jaccard_loss,
        "cross-entropy": loss_factories.bce(),
        "hinge": loss_factories.hinge(),
        "Lovász hinge": eg.LovaszHingeLoss(),
        "balanced cross-entropy": balanced_cross_entropy(part.target),
        "soft Jaccard": loss_factories.binary_soft_jaccard(),
    }
    scores = part.inputs.double()
    return {
        name: [float(loss(scores + bias, part.target)) for bias in BIASES]
        for name, loss in losses.items()
    }
