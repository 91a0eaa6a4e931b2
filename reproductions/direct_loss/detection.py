"""Table 2 on pasted objects: scores of boxes by three losses, judged by VOC's AP after suppression;
batches of 512 and 2048.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part, permutation
from evalgrad_lab.fit import Pace
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.claims import Claim, above, each, spread
from reproductions.direct_loss.boxes import Objects, average_precision, detections, hits
from reproductions.direct_loss.class_training import CLASSES, LOSSES, Bank, Hyper
from reproductions.direct_loss.objects import IGNORED, Regions, pasted
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size, by_size, on_fetched_data
from reproductions.training import rates_in_words, seeded, train, tuned

SETTINGS = by_size(
    "images batches iterations seeds rates",
    tiny=(12, [16, 64], 2, [0], [0.01]),
    full=(320, [512, 2048], 300, [0, 1, 2, 3, 4], [1e-4, 3e-4, 1e-3, 3e-3]),
)
REPORTED = {"ours": 48.5, "softmax": 47.0, "logistic": 45.6}
HYPER: Hyper = {"epsilon": 1.0, "positive_weight": 1.0}
KINDS = ("area", "11-point")


def box_loss(name: str, scores: Tensor, label: Tensor) -> Tensor:
    """Of scores (classes, n); softmax has one more row, for `NOTHING`."""
    if name == "softmax":
        return F.cross_entropy(scores.T, label, ignore_index=IGNORED)
    target = F.one_hot(label.clamp_min(0), CLASSES + 1).T[:CLASSES].contiguous()
    return LOSSES[name](scores, target, (label != IGNORED).expand_as(target), HYPER)


def precision(scores: Tensor, regions: Regions, objects: Objects) -> dict[str, float]:
    """Mean AP of the classes, in per cent."""
    found = []
    ranked = detections(regions.boxes, regions.image, scores[:CLASSES])
    for label, chosen in enumerate(ranked):
        own = objects.take(objects.label == label)
        right = hits(regions.boxes[chosen], regions.image[chosen], own)
        found.append(average_precision(right, int((~own.difficult).sum())))
    return {kind: fmean(each(found, kind)) for kind in KINDS}


def train_boxes(
    *, seed: int, images: int, loss: str, batch: int, iterations: int, learning_rate: float
) -> dict[str, Any]:
    """A piece: linear scores of the boxes' features, half of the images for training and a quarter
    each for validation and test.
    """
    regions, objects = pasted(images)
    order, quarter = permutation(images, seed), images // 4
    parts = order.split([images - 2 * quarter, quarter, quarter])
    train_part, *others = (regions.take(torch.isin(regions.image, part)) for part in parts)
    mean, deviation = train_part.features.mean(0), train_part.features.std(0).clamp_min(1e-6)
    rows = CLASSES + (loss == "softmax")
    model = seeded(seed, lambda: Bank(rows, len(mean), []))
    boxes = Part((train_part.features - mean) / deviation, train_part.label)
    batches = in_memory(boxes, min(batch, len(boxes)), seed)
    pace = Pace(learning_rate, seed=seed)
    train(model, lambda s, label: box_loss(loss, s, label), batches, pace, iterations)
    found = []
    for part, chosen in zip(others, parts[1:], strict=True):
        with torch.no_grad():
            scores = model((part.features - mean) / deviation)
        ranked = scores.log_softmax(0) if loss == "softmax" else scores
        found.append(precision(ranked, part, objects.take(torch.isin(objects.image, chosen))))
    return {"validation": found[0]["area"], "test": found[1]}


def run(size: Size, runs: Runs) -> Outcome:
    """Ours with two sizes of the batch, the others with the smaller one."""
    on_fetched_data("direct_loss/table-2", size, "cifar-10", "earth", "imagenet-logits")
    images, (small, large), iterations, seeds, rates = SETTINGS[size].values()
    common = {"images": images, "iterations": iterations}
    cases = {loss: {**common, "loss": loss, "batch": small} for loss in REPORTED}
    cases["ours, larger"] = {**cases["ours"], "batch": large}
    found = tuned(runs, train_boxes, cases, product({"learning_rate": rates}), seeds)
    numbers = {
        name: {kind: each(case.results, "test", kind) for kind in KINDS}
        for name, case in found.items()
    }
    rows = [
        [
            name,
            cases[name]["batch"],
            *(spread(some[kind]) for kind in KINDS),
            REPORTED.get(name, ""),
        ]
        for name, some in numbers.items()
    ]
    columns = ["loss", "batch", "mean AP, area", "11-point", "paper"]
    words = _setting(images, iterations, rates, rates_in_words(found))
    return Outcome(numbers, words, seeds, [Table("Mean AP on test, %", columns, rows)])


def _setting(images: int, iterations: int, rates: list[float], chosen: str) -> str:
    return (
        f"{images} views of the Earth of 64x64 pixels with one to three photographs of CIFAR-10"
        " pasted on each, in place of Pascal VOC 2012; 24 boxes per image, four of them near each"
        " object, in place of selective search; linear scores on the 320 features of an"
        " EfficientNet-Lite0, pretrained on ImageNet, of the content of a box, in place of a whole"
        " AlexNet. Objects that are smaller than 16 pixels or half covered are marked difficult"
        " and ignored, in training and in the AP. Boxes that overlap a better one by more than 0.3"
        f" are suppressed. {iterations} iterations, Adam, cosine schedule; epsilon 1, learning"
        f" rate chosen from {rates} by mean AP on validation: {chosen}. A seed is a split of the"
        " images."
    )


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Ours against both baselines, and the larger batch against the smaller."""
    area = {name: some["area"] for name, some in numbers.items()}
    rivals = [
        above(f"above {n}", area["ours"], area[n], paper=REPORTED["ours"] - REPORTED[n])
        for n in ("softmax", "logistic")
    ]
    return [*rivals, above("a larger batch is better", area["ours, larger"], area["ours"])]


DETECTION = Experiment(
    "direct_loss/table-2",
    "Detection, judged by AP",
    "Section 4.3, table 2",
    "the direct AP loss reaches a mean AP of 48.5 on Pascal VOC 2012, softmax 47.0 and logistic"
    " loss 45.6; larger batches are better.",
    run,
    judge,
    full=True,
)
