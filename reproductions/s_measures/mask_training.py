"""Experiments 2 and 3: a segmentation network with an extra node for the size of what it sees."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.embedded.scenes import CLASSES, digit_scenes
from evalgrad_lab.data.embedded.strokes import strokes
from evalgrad_lab.data.fetched.nuclei import nuclei
from evalgrad_lab.models.unet import UNet
from reproductions.s_measures.regulariser import Regulariser

BATCH = 16
TILE = 32
WIDTH = 12
THRESHOLDS = (0.55, 0.6, 0.65)  # of the probability, in experiment 2


class SizedUNet(nn.Module):
    """Scores of the pixels, and one score per image from the features that they come from."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.body = UNet(channels, outputs, WIDTH)
        # images here have sides that are multiples of 8
        self.pixels, self.body.head = self.body.head, nn.Sequential()
        self.size = eg.SizeHead(WIDTH)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(images)
        return self.pixels(features), self.size(features)


def load(data: str, seed: int, sizes: tuple[int, int, int]) -> Dataset[Part]:
    """Images and label maps: "strokes" and "nuclei" have one class besides the background, "scenes"
    ten.
    """
    makers = {"strokes": strokes, "scenes": digit_scenes, "nuclei": nucleus_tiles}
    return makers[data](seed, Sizes(*sizes))


def nucleus_tiles(seed: int, sizes: Sizes) -> Dataset[Part]:
    """Tiles of the microscope image that do not overlap, in a seeded order."""
    image, mask = (
        plane.unfold(0, TILE, TILE).unfold(1, TILE, TILE).flatten(0, 1) for plane in nuclei()
    )
    order = permutation(len(mask), seed)
    return cut(((image - image.mean()) / image.std())[order, None], mask[order], sizes)


def size_labels(data: str, target: Tensor, volume: float) -> Tensor:
    """Experiment 2: above the mean foreground. Experiment 3: the vote of the classes present, each
    large above `volume`.
    """
    if data == "scenes":
        return eg.majority_size_labels(target, classes=CLASSES, threshold=volume)
    return eg.SizeLabels().fit(target)(target)


def pixel_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, binary for one output."""
    if scores.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(scores[:, 0], target.float())
    return F.cross_entropy(scores, target)


@torch.no_grad()
def quality(model: nn.Module, part: Part) -> float:
    """One class: image IoU averaged over the paper's three thresholds. More: mean IoU of the data
    set. In per cent.
    """
    model.eval()
    scores = torch.cat([model(images)[0] for images in part.inputs.split(100)])
    model.train()
    if scores.shape[1] > 1:
        return (
            100
            * eg.metrics.jaccard_index(
                scores.argmax(1), part.target, num_classes=scores.shape[1]
            ).item()
        )
    decisions = [(scores[:, 0].sigmoid() > threshold).long() for threshold in THRESHOLDS]
    found = [
        eg.metrics.jaccard_index(d, part.target, num_classes=2, over="image", classes=[1])
        for d in decisions
    ]
    return 100 * torch.stack(found).mean().item()


def train_masks(
    *,
    data: str,
    seed: int,
    sizes: tuple[int, int, int],
    alpha: float,
    solver: str,
    learning_rate: float,
    epochs: int,
    volume: float = 0.05,
) -> dict[str, Any]:
    """A piece: Adam, batches of 16. IoU in per cent, `curve` on test after every epoch; `large` is
    the share of large images.
    """
    split = load(data, seed, sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SizedUNet(split.train.inputs.shape[1], CLASSES if data == "scenes" else 1)
    labels = size_labels(data, split.train.target, volume)
    regulariser = Regulariser(labels, alpha, solver)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    curve = []
    for _ in range(epochs):
        for index in torch.randperm(len(labels), generator=generator).split(BATCH):
            scores, size = model(split.train.inputs[index])
            optimiser.zero_grad()
            (
                pixel_loss(scores, split.train.target[index])
                + regulariser.loss(size, labels[index], index)
            ).backward()
            optimiser.step()
            regulariser.after_step()
        regulariser.after_epoch()
        curve.append(quality(model, split.test))
    return {
        "validation": quality(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "large": labels.double().mean().item(),
    }
