"""How a trained network is applied to images: whole, in tiles, at several scales and flipped, or on
crops.

Every function takes the network as a callable on batches ``(N, channels, H, W)``, so that they
nest: tiles of several scales are ``tiled(lambda crops: multi_scale(network, crops), images)``.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab import metrics
from evalgrad_lab.data.batches import Batch, in_order
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.read import look_at
from evalgrad_lab.decisions import one_score
from evalgrad_lab.errors import UserError
from evalgrad_lab.phases import shaped
from evalgrad_lab.saved import Description
from evalgrad_lab.view_options import ViewOptions

Network = Callable[[Tensor], Tensor]


def probabilities(scores: Tensor) -> Tensor:
    """Softmax over the classes ``(N, C, *)``; with one output the sigmoid."""
    return torch.sigmoid(scores) if scores.shape[1] == 1 else scores.softmax(1)


def tiled(network: Network, images: Tensor, *, tiles: int = 5, overlap: int = 0) -> Tensor:
    """What `network` says of upright tiles of full height, side by side (loss max-pooling,
    section 5.2).

    Args:
        network: maps images to scores of the same height and width.
        images: ``(N, channels, H, W)``.
        tiles: their number. Without overlap this is the paper's efficient tiling.
        overlap: pixels that neighbours share, for context; of these the left tile decides the left
            half and the right tile the right half. The paper takes 200.
    """
    width = images.shape[-1]
    cuts = [round(i * width / tiles) for i in range(tiles + 1)]
    decided = []
    for left, right in pairwise(cuts):
        start, stop = max(left - (overlap - overlap // 2), 0), min(right + overlap // 2, width)
        decided.append(network(images[..., start:stop])[..., left - start : right - start])
    return torch.cat(decided, -1)


def multi_scale(
    network: Network,
    images: Tensor,
    *,
    scales: Sequence[float] = (1.0, 0.75, 0.5),
    flips: bool = False,
) -> Tensor:
    """Mean of the probabilities of `network` at several scales of the image (Lovász-Softmax,
    section 4.3).

    Args:
        network: maps images to scores of the same height and width.
        images: ``(N, channels, H, W)``.
        scales: factors of the size; what is found is brought back to the size of the image.
        flips: look at the mirror image too, at every scale.
    """
    size = images.shape[-2:]
    views = []
    for scale in scales:
        shape, scaled = [max(round(scale * side), 1) for side in size], images
        if shape != list(size):
            scaled = F.interpolate(images, size=shape, mode="bilinear", antialias=scale < 1)
        for mirrored in (False, True)[: 1 + flips]:
            found = probabilities(network(scaled.flip(-1) if mirrored else scaled))
            found = found.flip(-1) if mirrored else found
            if shape != list(size):
                found = F.interpolate(found, size=size, mode="bilinear")
            views.append(found)
    return torch.stack(views).mean(0)


def ten_crops(images: Tensor, size: int) -> Tensor:
    """Corners and centre of every image and their mirrors: ``(N, 10, channels, size, size)``."""
    height, width = images.shape[-2:]
    down, right = height - size, width - size
    corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    found = [images[..., top : top + size, left : left + size] for top, left in corners]
    crops = torch.stack(found, 1)
    return torch.cat([crops, crops.flip(-1)], 1)


def crop_marginals(
    network: Network, images: Tensor, *, size: int, k: int = 5, temperature: float = 1.0
) -> Tensor:
    """Probability ``(N, C)`` of each class to be among the k predicted, averaged over ten crops
    (smooth top-k, section 5.2).

    The k largest are the prediction, as `topk_predict` makes it.
    """
    crops = ten_crops(images, size)
    scores = network(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])
    return eg.topk_probabilities(scores, k=k, temperature=temperature).mean(1)


def make_view(looks: dict[str, Any], description: Description, network: nn.Module) -> Network:
    """Scores of a batch, looked at as `looks` says, which `Views.views` gives; their sign or order
    decides.
    """
    if set(looks) - {"crops"} and description.task != "segmentation":
        raise UserError(
            "--tiles, --overlap, --scales and --flips are for segmentation; the model is for"
            f" {description.task}."
        )
    if "crops" in looks:
        if description.task != "classification" or description.columns:
            raise UserError(
                f"--crops is for the classification of images; the model is for {description.task}."
            )
        size, k = looks["crops"], metrics.find(description.metric, description.task).k
        return lambda images: crop_marginals(network, _large_enough(images, size), size=size, k=k)
    view: Network = network
    scales, flips = looks.get("scales", [1.0]), looks.get("flips", False)
    if scales != [1.0] or flips:
        view = _scaled(network, scales, flips)
    if (tiles := looks.get("tiles", 1)) > 1:
        inner, overlap = view, looks.get("overlap", 0)
        return lambda images: tiled(inner, images, tiles=tiles, overlap=overlap)
    return view


def scores_by_batch(
    options: ViewOptions,
    description: Description,
    network: nn.Module,
    examples: Examples,
    source: Path,
) -> Iterator[tuple[Tensor, Batch]]:
    """Scores and batch, in the order of the examples, after all inputs have been checked; what is
    wrong with them is reported for the `source`.
    """
    best = "cuda" if torch.cuda.is_available() else "cpu"
    device = best if options.device == "auto" else options.device
    looks = {**description.views, **options.views()}
    view = make_view(looks, description, network.to(device))
    if description.task == "segmentation" and examples.inputs[0].ndim != 3:
        shape = tuple(examples.inputs[0].shape)
        raise UserError(f"{source}: the model takes images; got inputs of the shape {shape}.")
    alike = look_at(source, examples, description.inputs).alike
    dims = {"segmentation": 3, "multilabel": 2}.get(description.task, 1)  # of the target
    for batch in in_order(examples, options.batch_size if alike else 1):
        with torch.inference_mode():
            scores = shaped(view(batch.inputs.to(device)), description.kind).cpu()
        yield one_score(scores, dims) if description.of_one_score else scores, batch


def _scaled(network: nn.Module, scales: Sequence[float], flips: bool) -> Network:
    def view(images: Tensor) -> Tensor:
        mean = multi_scale(network, images, scales=scales, flips=flips)
        # as scores again: a threshold of scores decides
        return torch.logit(mean) if mean.shape[1] == 1 else mean.log()

    return view


def _large_enough(images: Tensor, size: int) -> Tensor:
    if min(images.shape[-2:]) < size:
        raise UserError(
            f"--crops {size} is larger than an image of {tuple(images.shape[-2:])} pixels. Take"
            " smaller crops."
        )
    return images
