"""One network per class, side by side: the protocol of table 1 on real digits."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.digits import noisy_digits
from evalgrad_lab.fit import Pace
from reproductions.training import seeded, train

CLASSES, PIXELS = 10, 64
# learning_rate, weight_decay, and epsilon (ours) or positive_weight (the baselines)
Hyper = dict[str, float]


class Bank(nn.Module):
    """Networks of equal shape that share nothing: (n, inputs) -> (networks, n)."""

    def __init__(self, networks: int, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        shapes = zip((inputs, *widths), (*widths, 1), strict=True)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for shape in shapes:
            layers = [nn.Linear(*shape) for _ in range(networks)]
            self.weights.append(torch.stack([layer.weight.detach().T for layer in layers]))
            self.biases.append(torch.stack([layer.bias.detach()[None] for layer in layers]))

    def forward(self, inputs: Tensor) -> Tensor:
        values = inputs.expand(len(self.weights[0]), *inputs.shape)
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values if depth == 0 else values.relu(), weight)
        return values[..., 0]


def direct(scores: Tensor, target: Tensor, hyper: Hyper) -> Tensor:
    """Positive direct AP of each class."""
    epsilon = hyper["epsilon"]
    return eg.direct_average_precision_loss(scores, target, epsilon=epsilon, reduction="sum")


def logistic(scores: Tensor, target: Tensor, hyper: Hyper) -> Tensor:
    """Logistic loss of each class; a positive counts `positive_weight` times."""
    how: Any = {"pos_weight": torch.tensor(hyper["positive_weight"]), "reduction": "none"}
    return F.binary_cross_entropy_with_logits(scores, target.float(), **how).mean(-1).sum()


def hinge(scores: Tensor, target: Tensor, hyper: Hyper) -> Tensor:
    """Hinge loss of each class; a positive counts `positive_weight` times."""
    weight = torch.where(target == 1, hyper["positive_weight"], 1.0)
    return (weight * (1 - torch.where(target == 1, scores, -scores)).relu()).mean(-1).sum()


LOSSES: dict[str, Callable[[Tensor, Tensor, Hyper], Tensor]] = {
    "logistic": logistic,
    "hinge": hinge,
    "ours": direct,
}


def train_classes(
    *, seed: int, swapped: float, widths: list[int], loss: str, hyper: Hyper, iterations: int
) -> dict[str, list[float]]:
    """A piece: Adam on the whole training set. AP in per cent of every class."""
    split = noisy_digits(seed, swapped=swapped)
    model = seeded(seed, lambda: Bank(CLASSES, PIXELS, widths))
    pace = Pace(hyper["learning_rate"], hyper["weight_decay"], seed=seed)

    def of_all(scores: Tensor, target: Tensor) -> Tensor:
        return LOSSES[loss](scores, target.T.contiguous(), hyper)

    train(model, of_all, in_memory(split.train, None, seed), pace, iterations)
    parts = {"validation": split.validation, "test": split.test}
    return {name: precisions(model, part) for name, part in parts.items()}


@torch.no_grad()
def precisions(model: nn.Module, part: Part) -> list[float]:
    """AP of every class, in per cent; 0 where its training diverged."""
    target = part.target.T
    found = eg.metrics.average_precision(model(part.inputs), target, ties="worst", reduction="none")
    return (100 * found.nan_to_num()).tolist()
