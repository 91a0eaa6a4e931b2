"""How a trained network looks at an image: once, in tiles, at several scales and mirrored, or over
crops.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from evalgrad_lab import views
from evalgrad_lab.data.examples import Examples
from evalgrad_lab.data.files.reading import check_inputs
from evalgrad_lab.data.loading import Batch, EpochOrder, Items, Loading, loader
from evalgrad_lab.errors import UserError
from evalgrad_lab.training.goals import parse_goal
from evalgrad_lab.training.module import scores_of
from evalgrad_lab.training.saved import Description

View = Callable[[Tensor], Tensor]


def add_arguments(parser: ArgumentParser) -> None:
    """The options that `evaluate` and `predict` share."""
    add = parser.add_argument
    add("run", help="the --out folder of `evalgrad train`")
    add("--data", required=True, help="as for `evalgrad train`")
    add("--batch-size", type=int, default=16)
    add(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="where the network runs (%(default)s)",
    )
    add("--tiles", type=int, default=1, help="segmentation: upright tiles of full height")
    add("--overlap", type=int, default=0, help="pixels that neighbouring tiles share")
    add(
        "--scales",
        type=_numbers,
        default=(1.0,),
        help="segmentation: mean over these scales, e.g. 1,0.75,0.5",
    )
    add("--flips", action="store_true", help="segmentation: look at the mirror image too")
    add("--crops", type=int, help="classification: top-k marginals over ten crops of this side")


def make_view(options: Namespace, description: Description, network: nn.Module) -> View:
    """Scores of a batch of inputs, looked at as the options say. Their sign or order decides, as
    for plain scores.
    """
    dense = options.tiles > 1 or options.overlap or options.scales != (1.0,) or options.flips
    if dense and description.task != "segmentation":
        raise UserError(
            "--tiles, --overlap, --scales and --flips are for segmentation; the model is for"
            f" {description.task}."
        )
    if options.crops is not None and (description.task != "classification" or description.columns):
        raise UserError(
            f"--crops is for the classification of images; the model is for {description.task}."
        )
    if options.crops is not None:
        k = parse_goal(description.metric, description.task).k
        return lambda images: views.crop_marginals(
            network, _large_enough(images, options.crops), size=options.crops, k=k
        )
    view: View = network
    if options.scales != (1.0,) or options.flips:
        view = _scaled(network, options.scales, options.flips)
    if options.tiles > 1:
        inner = view
        return lambda images: views.tiled(
            inner, images, tiles=options.tiles, overlap=options.overlap
        )
    return view


def scores_by_batch(
    options: Namespace, description: Description, network: nn.Module, examples: Examples
) -> Iterator[tuple[Tensor, Batch]]:
    """Scores and batch, in the order of the examples, after all inputs have been checked."""
    view = make_view(options, description, network.to(options.device))
    loading = Loading(
        options.batch_size,
        seed=0,
        same_size=check_inputs(options.data, examples, description.inputs),
    )
    items = Items(examples, loading)
    for batch in loader(items, loading, EpochOrder(len(items), 0, rank=0, ranks=1, shuffle=False)):
        with torch.inference_mode():
            scores = scores_of(view, batch["inputs"].to(options.device), description.kind).cpu()
        yield scores, batch


def _scaled(network: nn.Module, scales: tuple[float, ...], flips: bool) -> View:
    def view(images: Tensor) -> Tensor:
        mean = views.multi_scale(network, images, scales=scales, flips=flips)
        return torch.logit(mean) if mean.shape[1] == 1 else mean  # one output is decided at 0

    return view


def _large_enough(images: Tensor, size: int) -> Tensor:
    if min(images.shape[-2:]) < size:
        raise UserError(
            f"--crops {size} is larger than an image of {tuple(images.shape[-2:])} pixels. Take"
            " smaller crops."
        )
    return images


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
