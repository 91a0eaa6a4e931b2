"""The base of all fine-tunings on a data set: one network per seed, trained with cross-entropy
until more of it changes little. The papers fine-tune networks that were trained before, too.
"""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.metrics import jaccard_counts
from evalgrad_lab.data.batches import Batches, in_memory
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.fit import scores_of
from evalgrad_lab.runs import Runs, Settings
from evalgrad_lab.store import write_atomically
from reproductions.data_sets import DATA_SETS, DataSet, rescaled
from reproductions.sizes import Size
from reproductions.training import Loss, adam_poly, seeded, train

Start = Mapping[str, Any]  # plain data: data, setting, seed and the file of the weights, base


class Base(NamedTuple):
    """What a fine-tuning begins with."""

    data: DataSet
    split: Dataset[Part]
    network: nn.Module
    seed: int

    def shuffled(self, size: int, seed: int) -> Batches:
        """Batches of the training part."""
        return self.changed(in_memory(self.split.train, size, seed), seed)

    def changed(self, batches: Batches, seed: int) -> Batches:
        """The batches that training uses: rescaled if the data set asks for it."""
        return rescaled(batches, seed) if self.data.rescaled else batches

    def cross_entropy(self) -> Loss:
        """What the base is trained with."""
        if not self.data.weighted:
            return self.data.loss("cross_entropy")
        pixels = self.data.pixels(self.split.train.target)
        weights = 1 / (1.02 + pixels / pixels.sum()).log()  # ENet's
        return self.data.loss("cross_entropy", weight=weights.tolist())

    def mious(self, prediction: Tensor, target: Tensor) -> dict[str, float]:
        """In per cent: of the dataset, of batches, of images with all classes (0/0 = 1)."""
        kinds: dict[str, Any] = {
            "dataset": {},
            "batch": {"over": "batch", "batch_size": self.data.batch},
            "image": {"over": "image", "classes": "all"},
        }
        how: Any = {"num_classes": len(self.data.classes), "ignore_index": self.data.void}
        index = partial(eg.metrics.jaccard_index, prediction, target, **how)
        return {name: 100 * index(**kind).item() for name, kind in kinds.items()}

    def evaluate(self, model: nn.Module, part: Part) -> dict[str, float]:
        """The three kinds of mIoU of the most likely classes."""
        return self.mious(scores_of(model, part.inputs, 32).argmax(1), part.target)

    def counts(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Intersection, predicted and true pixels of every class on all images."""
        how: Any = {"num_classes": len(self.data.classes), "ignore_index": self.data.void}
        return jaccard_counts(prediction, target, **how).sum(0)

    def constant(self, part: Part) -> Tensor:
        """The best constant prediction: the most frequent class everywhere."""
        return torch.full_like(part.target, int(self.data.pixels(part.target).argmax()))


def iou_of(counts: Tensor) -> Tensor:
    """(C,) IoU from summed counts (C, 3); NaN for a class neither predicted nor true."""
    hit, predicted, true = counts.double().unbind(-1)
    return hit / (predicted + true - hit)


def class_ious(counts: Tensor) -> list[float | None]:
    """IoU in per cent of the classes that occur, None for the others."""
    pairs = zip(iou_of(counts).tolist(), counts[:, 2].tolist(), strict=True)
    return [100 * value if true else None for value, true in pairs]


def train_base(*, data: str, setting: dict[str, Any], seed: int) -> str:
    """A piece: the weights, as text."""
    source = DATA_SETS[data]
    base = Base(source, source.read(setting, seed), seeded(seed, partial(source.build, setting)), 0)
    batches, pace = base.shuffled(source.batch, seed), adam_poly(source.rate, seed=seed)
    train(base.network, base.cross_entropy(), batches, pace, setting["iterations"])
    written = io.BytesIO()
    torch.save(base.network.state_dict(), written)
    return base64.b64encode(written.getvalue()).decode()


def with_bases(runs: Runs, data: DataSet, size: Size, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """For every seed what `read_base` needs. Weights lie in files: the settings of a run name its
    base, and must not hold megabytes.
    """
    asked = [{"data": data.name, "setting": data.setting(size), "seed": seed} for seed in seeds]
    folder = runs.store.folder.with_name("bases")
    return [
        {**one, "base": str(_written(folder, text))}
        for one, text in zip(asked, runs.run(train_base, asked), strict=True)
    ]


def _written(folder: Path, text: str) -> Path:
    """Write the weights to a file named by their checksum."""
    weights = base64.b64decode(text)
    path = folder / f"{hashlib.sha256(weights).hexdigest()[:16]}.pt"
    if not path.exists():
        write_atomically(path, weights)
    return path


def read_base(start: Start) -> Base:
    """The data, and the network that `train_base` gave for them."""
    data, setting, seed = DATA_SETS[start["data"]], start["setting"], start["seed"]
    network = data.build(setting)
    network.load_state_dict(torch.load(start["base"], weights_only=True))
    return Base(data, data.read(setting, seed), network.eval(), seed)


def in_words(data: DataSet, setting: Settings) -> str:
    """What the base was trained on."""
    weights = "cross-entropy with ENet's class weights" if data.weighted else "cross-entropy"
    return (
        f"{data.words.format(**setting)}, {setting['iterations']} iterations of {weights}, Adam,"
        f" poly schedule, batches of {data.batch}, learning rate {data.rate:g}, one network per"
        " seed"
    )
