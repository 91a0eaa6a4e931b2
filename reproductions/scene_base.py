"""The base of all fine-tunings on digit scenes: one U-Net per seed, trained with cross-entropy
until more of it changes little. The papers fine-tune networks that were trained before, too.
"""

import base64
import io
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.fit import scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.runs import Runs, Settings
from reproductions.experiment import Size, by_size
from reproductions.training import Counts, adam_poly, seeded, train

BATCH, RATE = 16, 0.01
SCENES = by_size(
    "sizes width iterations",
    tiny=([32, 32, 32], 4, 2),
    default=([12000, 500, 1000], 24, 3000),
    full=([12000, 500, 1000], 24, 3000),
)


def train_base(*, seed: int, sizes: Counts, width: int, iterations: int) -> str:
    """A piece: the weights, as text."""
    split = digit_scenes(seed, Sizes(*sizes))
    network = seeded(seed, lambda: UNet(1, SCENE_CLASSES, width))
    batches = in_memory(split.train, BATCH, seed)
    train(network, make("cross_entropy", {}), batches, adam_poly(RATE, seed=seed), iterations)
    written = io.BytesIO()
    torch.save(network.state_dict(), written)
    return base64.b64encode(written.getvalue()).decode()


def with_bases(runs: Runs, size: Size, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """For every seed what a fine-tuning needs: `seed`, `sizes`, `width` and the weights `base`."""
    setting = SCENES[size]
    asked = [{**setting, "seed": seed} for seed in seeds]
    bases = runs.run(train_base, asked)
    shared = {name: setting[name] for name in ("sizes", "width")}
    return [{**shared, "seed": seed, "base": b} for seed, b in zip(seeds, bases, strict=True)]


def read_base(seed: int, sizes: Counts, width: int, base: str) -> tuple[Dataset[Part], UNet]:
    """The scenes, and the network that `train_base` gave for them."""
    network = UNet(1, SCENE_CLASSES, width)
    stored = io.BytesIO(base64.b64decode(base))
    network.load_state_dict(torch.load(stored, weights_only=True))
    return digit_scenes(seed, Sizes(*sizes)), network.eval()


def mious(prediction: Tensor, target: Tensor) -> dict[str, float]:
    """In per cent: of the dataset, of batches of 16, of images with all classes (0/0 = 1)."""
    kinds: dict[str, Any] = {
        "dataset": {},
        "batch": {"over": "batch", "batch_size": BATCH},
        "image": {"over": "image", "classes": "all"},
    }
    index = partial(eg.metrics.jaccard_index, prediction, target, num_classes=SCENE_CLASSES)
    return {name: 100 * index(**how).item() for name, how in kinds.items()}


def evaluate(model: nn.Module, part: Part) -> dict[str, float]:
    """The three kinds of mIoU of the most likely classes."""
    return mious(scores_of(model, part.inputs).argmax(1), part.target)


def constant(part: Part) -> dict[str, float]:
    """The three kinds of mIoU of background everywhere, the best constant prediction."""
    return mious(torch.zeros_like(part.target), part.target)


def in_words(setting: Settings) -> str:
    """What the base was trained on."""
    train_scenes, validation, test = setting["sizes"]
    return (
        f"digit scenes of 32 x 32 pixels, 10 digits with a 9:1 tail and a dominant background,"
        f" {train_scenes} + {validation} + {test} scenes, whose parts share no glyph. Base: a U-Net"
        f" of {setting['width']} channels, {setting['iterations']} iterations of cross-entropy,"
        f" Adam, poly schedule, batches of {BATCH}, learning rate {RATE}, one for each seed"
    )
