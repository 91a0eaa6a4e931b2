"""Several crops of one image, and what to average over them (section 5.2, appendix C)."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import scores_of


def nine_crops(inputs: Tensor, channels: int = 1) -> Tensor:
    """Flat images twice as wide as high, channels last -> (n, 9, pixels), shifted by -1, 0 and 1
    pixel along both axes.

    A mirrored digit or pair is of another class, so these stand for the ten crops of the paper. The
    fifth is the image itself.
    """
    height = int((inputs.shape[1] / 2 / channels) ** 0.5)
    width, border = 2 * height * channels, (channels, channels, 1, 1)
    images = F.pad(inputs.view(-1, height, width), border, value=inputs.min().item())
    places = itertools.product(range(3), range(0, 3 * channels, channels))
    crops = [images[:, y : y + height, x : x + width].flatten(1) for y, x in places]
    return torch.stack(crops, 1)


def shifted(inputs: Tensor, generator: torch.Generator, channels: int) -> Tensor:
    """Each image at one of its nine places, drawn by itself."""
    places = torch.randint(9, (len(inputs),), generator=generator)
    return nine_crops(inputs, channels)[torch.arange(len(inputs)), places]


def crop_accuracies(model: nn.Module, part: Part, k: int, channels: int = 1) -> dict[str, float]:
    """Top-k accuracy in per cent: one crop, or softmax or marginals averaged over nine."""
    scores = scores_of(model, nine_crops(part.inputs, channels).flatten(0, 1))
    scores = scores.view(len(part), 9, -1)
    averaged = {
        "one crop": scores[:, 4],
        "softmax": scores.softmax(-1).mean(1),
        "marginals": eg.topk_probabilities(scores, k=k).mean(1),
    }
    target = part.target
    errors = {name: eg.metrics.topk_error(some, target, k=k) for name, some in averaged.items()}
    return {name: 100 * (1 - error.item()) for name, error in errors.items()}
