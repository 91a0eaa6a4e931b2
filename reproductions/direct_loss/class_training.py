"""One network per class, side by side: the protocol of table 1 on digits and photographs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.data.embedded.digits import noisy_digits
from evalgrad_lab.fit import Pace
from reproductions.direct_loss.photographs import photographs
from reproductions.training import seeded, train

CLASSES = 10
SWAPPED, KEPT = {"clean": 0.0, "noisy": 0.4}, {"one in ten": 1.0, "one in fifty": 0.18}
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
        # One product for all networks: expanded inputs would be copied for each.
        values = torch.einsum("bi,kio->kbo", inputs, self.weights[0]) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            values = torch.baddbmm(bias, values.relu(), weight)
        return values[..., 0]


def direct(scores: Tensor, target: Tensor, mask: Tensor, hyper: Hyper) -> Tensor:
    """Positive direct AP of each class."""
    how: Any = {"epsilon": hyper["epsilon"], "mask": mask, "reduction": "sum"}
    return eg.direct_average_precision_loss(scores, target, **how)


def logistic(scores: Tensor, target: Tensor, mask: Tensor, hyper: Hyper) -> Tensor:
    """Logistic loss of each class; a positive counts `positive_weight` times."""
    how: Any = {"pos_weight": torch.tensor(hyper["positive_weight"]), "reduction": "none"}
    losses = F.binary_cross_entropy_with_logits(scores, target.float(), **how)
    return ((losses * mask).sum(-1) / mask.sum(-1)).sum()


def hinge(scores: Tensor, target: Tensor, mask: Tensor, hyper: Hyper) -> Tensor:
    """Hinge loss of each class; a positive counts `positive_weight` times."""
    weight = torch.where(target == 1, hyper["positive_weight"], 1.0) * mask
    losses = weight * (1 - torch.where(target == 1, scores, -scores)).relu()
    return (losses.sum(-1) / mask.sum(-1)).sum()


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Hyper], Tensor]] = {
    "logistic": logistic,
    "hinge": hinge,
    "ours": direct,
}


def load(data: str, labels: str, seed: int) -> Dataset[Part]:
    """Digits of 4x4 pixels, clean or noisy, for at 8x8 all losses are near 100; or features of
    photographs, of which one in ten or in fifty is of the class.
    """
    if data == "photographs":
        return photographs(seed, kept=KEPT[labels])
    fine = noisy_digits(seed, swapped=SWAPPED[labels])
    parts = (fine.train, fine.validation, fine.test)
    coarse = (F.avg_pool2d(part.inputs.view(-1, 1, 8, 8), 2).flatten(1) for part in parts)
    return Dataset(*(Part(c, part.target) for c, part in zip(coarse, parts, strict=True)))


def split_target(target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes), -1 where it does not count -> labels 0 and 1 and a mask, (classes, n)."""
    rows = target.T.contiguous()
    return rows.clamp_min(0), rows >= 0


def train_classes(
    *,
    seed: int,
    data: str,
    labels: str,
    widths: list[int],
    loss: str,
    hyper: Hyper,
    iterations: int,
) -> dict[str, list[float]]:
    """A piece: Adam on the whole training set. AP in per cent of every class."""
    split = load(data, labels, seed)
    model = seeded(seed, lambda: Bank(CLASSES, split.train.inputs.shape[1], widths))
    pace = Pace(hyper["learning_rate"], hyper["weight_decay"], seed=seed)

    def of_all(scores: Tensor, target: Tensor) -> Tensor:
        return LOSSES[loss](scores, *split_target(target), hyper)

    train(model, of_all, in_memory(split.train, None, seed), pace, iterations)
    parts = {"validation": split.validation, "test": split.test}
    return {name: precisions(model, part) for name, part in parts.items()}


@torch.no_grad()
def precisions(model: nn.Module, part: Part) -> list[float]:
    """AP of every class, in per cent; 0 where its training diverged."""
    target, mask = split_target(part.target)
    how: Any = {"mask": mask, "ties": "worst", "reduction": "none"}
    found = eg.metrics.average_precision(model(part.inputs), target, **how)
    return (100 * found.nan_to_num()).tolist()
