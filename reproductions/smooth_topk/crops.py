"""Several crops of one image, and what to average over them (section 5.2, appendix C)."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg


def nine_crops(inputs: Tensor) -> Tensor:
    """Flat images twice as wide as high -> (n, 9, pixels), shifted by -1, 0 and 1 pixel along both
    axes.

    Digits cannot be mirrored as photographs can, so these stand for the ten crops of the paper. The
    fifth is the image itself.
    """
    height = int((inputs.shape[1] / 2) ** 0.5)
    images = F.pad(inputs.view(-1, height, 2 * height), (1, 1, 1, 1), value=inputs.min().item())
    places = itertools.product(range(3), range(3))
    crops = [images[:, y : y + height, x : x + 2 * height].flatten(1) for y, x in places]
    return torch.stack(crops, 1)


def shifted(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Each image at one of its nine places, drawn by itself."""
    places = torch.randint(9, (len(inputs),), generator=generator)
    return nine_crops(inputs)[torch.arange(len(inputs)), places]


@torch.no_grad()
def crop_accuracies(model: nn.Module, inputs: Tensor, target: Tensor, k: int) -> dict[str, float]:
    """Top-k accuracy in per cent: one crop, or softmax or marginals averaged over nine."""
    scores = model(nine_crops(inputs).flatten(0, 1)).view(len(inputs), 9, -1)
    averaged = {
        "one crop": scores[:, 4],
        "softmax": scores.softmax(-1).mean(1),
        "marginals": eg.topk_probabilities(scores, k=k).mean(1),
    }
    errors = {name: eg.metrics.topk_error(some, target, k=k) for name, some in averaged.items()}
    return {name: 100 * (1 - error.item()) for name, error in errors.items()}
