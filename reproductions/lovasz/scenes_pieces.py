"""Section 4.3: fine-tunings of one base, watched by the three kinds of mIoU, and what is done with
the networks at the test: several scales, a CRF, Nowozin's decisions.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import Every, scores_of
from evalgrad_lab.views import multi_scale
from reproductions.bases import Base, class_ious, read_base
from reproductions.crf import Crf
from reproductions.data_sets import DataSet
from reproductions.training import Loss, adam_poly, equibatches, forked, train

BATCHES, GROUP = 20, 21  # on which the paper tries Nowozin's rule, and images in each
DRAWS = 10_000  # until one of them must have been found
STRENGTHS = (0.5, 1.0, 2.0)  # of both messages of the CRF, chosen on validation
EVERY = 4  # of so many validation images one chooses it


def losses(data: DataSet) -> dict[str, Loss]:
    """The paper's three: Lovász of the batch is over present classes, per image over all."""
    return {
        "cross-entropy": data.loss("cross_entropy"),
        "Lovász": data.loss("lovasz_softmax"),
        "Lovász per image": data.loss("lovasz_softmax", per_image=True, classes="all"),
    }


def class_table(target: Tensor, classes: int) -> Tensor:
    """Which classes each image has: (images, classes); the void is none."""
    table = torch.zeros(len(target), 256, dtype=torch.bool)
    return table.scatter_(1, target.flatten(1), True)[:, :classes]


def whole_batches(presence: Tensor, seed: int) -> list[Tensor]:
    """The paper's random batches with every class that an image of the table has: their indices."""
    present = presence[:, presence.any(0)]
    generator = torch.Generator().manual_seed(seed)

    def whole() -> Tensor:
        for _ in range(DRAWS):
            drawn = torch.randperm(len(present), generator=generator)[:GROUP]
            if present[drawn].any(0).all():
                return drawn
        raise ValueError(
            f"whole_batches: `presence` must let {GROUP} images hold every class; got"
            f" {present.shape[1]} classes in {len(present)} images, and {DRAWS} random batches"
            " lack one each. Use more images of the rare classes."
        )

    return [whole() for _ in range(BATCHES)]


def on_batches(base: Base, labels: Callable[[Tensor], Tensor]) -> float:
    """Mean mIoU of those batches of test images; `labels` takes the indices of a batch."""
    target = base.split.test.target
    batches = whole_batches(class_table(target, len(base.data.classes)), base.seed)
    return fmean(base.mious(labels(at), target[at])["dataset"] for at in batches)


@torch.no_grad()
def several_scales(model: nn.Module, images: Tensor) -> Tensor:
    """Mean probabilities at the paper's three scales."""
    return torch.cat([multi_scale(model, some) for some in images.split(100)])


def crf_strength(base: Base) -> float:
    """That of the best mIoU of the base on validation."""
    part = base.split.validation
    part = Part(part.inputs[::EVERY], part.target[::EVERY])
    found = several_scales(base.network, part.inputs)

    def score(strength: float) -> float:
        smoothed = Crf(strength, strength)(found, part.inputs)
        return base.mious(smoothed.argmax(1), part.target)["dataset"]

    return max(STRENGTHS, key=score)


def at_test(base: Base, model: nn.Module, views: Sequence[str], strength: float) -> dict[str, Any]:
    """All kinds of mIoU on test, the mean of `on_batches`, the IoU of the classes, and by `views`
    the mIoU of the dataset at several scales, with a CRF of the `strength` on them or by Nowozin's
    rule for groups of images, and the mean of the batches by that rule.
    """
    part, labels = base.split.test, {}
    found = scores_of(model, part.inputs, 32)
    likely = found.argmax(1)
    if "multi-scale" in views:
        scales = several_scales(model, part.inputs)
        labels["multi-scale"] = scales.argmax(1)
    if "CRF" in views:
        labels["CRF"] = Crf(strength, strength)(scales, part.inputs).argmax(1)
    rule = eg.decisions.dataset_jaccard_labels
    if "groups" in views:
        labels["groups"] = torch.cat([rule(some) for some in found.softmax(1).split(GROUP)])
    extra = {name: base.mious(some, part.target)["dataset"] for name, some in labels.items()}
    extra["batches"] = on_batches(base, lambda at: likely[at])
    if "Nowozin" in views:
        extra["Nowozin"] = on_batches(base, lambda at: rule(found[at].softmax(1)))
    counts = base.counts(likely, part.target)
    by_class = {"per_class": class_ious(counts), "pixels": counts[:, 2].tolist()}
    return {**base.mious(likely, part.target), **extra, **by_class}


def fine_tune(
    *,
    start: dict[str, Any],
    variants: dict[str, list[Any]],
    rates: list[float],
    iterations: int,
    every: int,
    views: dict[str, list[str]],
) -> dict[str, Any]:
    """A piece: the constant prediction and the base on test; every variant (loss, equibatch, factor
    of the iterations) by learning rate: its mIoU on validation, the `curve` of all kinds there, and
    all of them on test, with its `views`.
    """
    base = read_base(start)
    split, seed, data = base.split, base.seed + 1, base.data
    before = base.evaluate(base.network, split.validation)
    strength = crf_strength(base) if any("CRF" in some for some in views.values()) else 0.0

    def further(model: nn.Module, name: str, rate: float) -> dict[str, Any]:
        loss, equibatch, factor = variants[name]
        curve = [{"iteration": 0, **before}]

        def look(iteration: int) -> None:
            curve.append({"iteration": iteration, **base.evaluate(model, split.validation)})

        batches = base.shuffled(data.batch, seed)
        if equibatch:
            presence = class_table(split.train.target, len(data.classes))
            batches = base.changed(equibatches(split.train, presence, data.batch, seed), seed)
        pace, steps = adam_poly(rate, seed=seed), round(factor * iterations)
        train(model, losses(data)[loss], batches, pace, steps, [Every(every, look)])
        own = "image" if loss == "Lovász per image" else "dataset"  # what the loss stands for
        test = at_test(base, model, views[name], strength)
        return {"validation": curve[-1][own], "test": test, "curve": curve}

    constant = base.constant(split.test)
    kept = {"constant": base.mious(constant, split.test.target)}
    kept["constant"]["batches"] = on_batches(base, lambda at: constant[at])
    kept["base"] = base.evaluate(base.network, split.test)
    return {
        **kept,
        "tuned": forked(base.network, {name: name for name in variants}, rates, further),
    }
