"""Direct loss, 4.1 and 5.3: points of a Gaussian, ranked by a random network or by a plane."""

import torch

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut

FEATURES = 10
# the paper's training and test set, and points of our own to choose epsilon on
PAPER = Sizes(10_000, 4_000, 10_000)


def teacher_ranking(
    seed: int, sizes: Sizes = PAPER, *, width: int = 20, positives: float = 0.2
) -> Dataset[Part]:
    """Inputs (n, 10) and 1 for the share `positives` that a random four-layer ReLU network scores
    highest.

    The parameters of the network are N(0, 1), as in the paper; it gives no width.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), FEATURES, generator=generator)
    scores = inputs
    for fan_in, fan_out in ((FEATURES, width), (width, width), (width, width), (width, 1)):
        weight, bias = (
            torch.randn(fan_in, fan_out, generator=generator),
            torch.randn(fan_out, generator=generator),
        )
        scores = scores @ weight + bias
        if fan_out > 1:
            scores = scores.relu()
    best = scores[:, 0].argsort(descending=True, stable=True)[: round(positives * len(inputs))]
    return cut(inputs, torch.zeros(len(inputs), dtype=torch.int64).index_fill(0, best, 1), sizes)


def linear_ranking(seed: int, sizes: Sizes = PAPER, *, flipped: float = 0.0) -> Dataset[Part]:
    """Inputs (n, 10) and 1 where their sum is above 0; a share `flipped` of all labels is turned
    round.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), FEATURES, generator=generator)
    target = inputs.sum(1) > 0
    turned = torch.randperm(len(inputs), generator=generator)[: round(flipped * len(inputs))]
    target[turned] = ~target[turned]
    return cut(inputs, target.long(), sizes)
