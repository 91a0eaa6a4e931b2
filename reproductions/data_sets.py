"""The images on which the two segmentation papers' fine-tunings run, each with the network for
them: digit scenes, which are drawn, and CamVid, whose folder the command line names.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evalgrad_lab.data.batches import Batch, Batches, mixed_seed
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.data.fetched import EFFICIENTNET, place
from evalgrad_lab.data.layouts.images import DEVIATION, MEAN
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.efficientnet_lite import EfficientNetUNet
from evalgrad_lab.models.enet import ENet
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.models.weights import load_weights
from evalgrad_lab.runs import Settings
from reproductions.ladder.arrays import camvid
from reproductions.sizes import Size, SkippedError, by_size
from reproductions.training import Counts, Loss

CAMVID = "EVALGRAD_CAMVID"  # the environment variable that --camvid sets
SPAN = (0.5, 1.0)  # of the factors of the size: those at which the test looks, too


@dataclass(frozen=True)
class DataSet:
    """`read` takes a setting and the seed, `build` the setting; `words` says what they are. The
    base is trained in batches of `batch` at `rate`, `weighted` by ENet's weights of the classes.
    """

    name: str
    classes: Sequence[str]
    sizes: Mapping[str, dict[str, Any]]
    words: str  # formatted with the setting
    read: Callable[[Settings, int], Dataset[Part]]
    build: Callable[[Settings], nn.Module]
    batch: int = 16
    rate: float = 0.01
    weighted: bool = False
    void: int | None = None
    rescaled: bool = False  # as the papers do, and several scales at the test need
    categories: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of classes
    where: Callable[[], dict[str, Any]] = dict  # what else a setting needs: the folder
    title: str = ""  # of experiments that are not on scenes

    def setting(self, size: Size) -> dict[str, Any]:
        """Plain data that `read` and `build` take; raises if the data are not there."""
        return {**self.sizes[size], **self.where()}

    def pixels(self, target: Tensor) -> Tensor:
        """How many each class has; the void, whose label is larger, is left out."""
        classes = len(self.classes)
        return torch.bincount(target.flatten(), minlength=classes)[:classes]

    def loss(self, name: str, **options: Any) -> Loss:
        """A loss of the lab's table, which leaves out the void."""
        return make(name, options if self.void is None else {**options, "ignore_index": self.void})


def rescaled(batches: Batches, seed: int) -> Batches:
    """Each batch at a size of its own and mirrored or not. It is not cropped: a class for which a
    sampler has chosen an image would often be cut off.
    """

    def epoch(number: int) -> Iterator[Batch]:
        for at, batch in enumerate(batches(number)):
            generator = torch.Generator().manual_seed(mixed_seed(seed, number, at))
            chance, side = torch.rand(2, generator=generator).tolist()
            factor = SPAN[0] + chance * (SPAN[1] - SPAN[0])
            inputs, target = resized(batch.inputs, batch.target, factor)
            if side < 0.5:
                inputs, target = inputs.flip(-1), target.flip(-1)
            yield Batch(inputs, target, batch.index)

    return epoch


def resized(images: Tensor, labels: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Images and label maps, `factor` times as large."""
    size = [max(round(factor * side), 1) for side in labels.shape[-2:]]
    small = F.interpolate(images, size=size, mode="bilinear", antialias=factor < 1)
    nearest = F.interpolate(labels[:, None].float(), size=size, mode="nearest")[:, 0]
    return small, nearest.to(labels.dtype)


# ---- digit scenes --------------------------------------------------------------------------------

DIGITS = ["background", *map(str, range(10))]
SCENES = DataSet(
    "scenes",
    DIGITS,
    by_size(
        "sizes width iterations",
        tiny=([32, 32, 32], 4, 2),
        default=([12000, 500, 1000], 24, 3000),
    ),
    "digit scenes of 32 x 32 pixels, 10 digits, the most frequent nine times as frequent as the"
    " rarest, and a dominant background; {sizes[0]} + {sizes[1]} + {sizes[2]} scenes for"
    " training, validation and test, which share no glyphs. Base: a U-Net of {width} channels",
    lambda setting, seed: digit_scenes(seed, Sizes(*setting["sizes"])),
    lambda setting: UNet(1, SCENE_CLASSES, setting["width"]),
)

# ---- CamVid --------------------------------------------------------------------------------------

ROADS = [
    *("sky", "building", "pole", "road", "pavement", "tree"),
    *("sign", "fence", "car", "pedestrian", "cyclist"),
]
ROAD_CATEGORIES = {  # those of Cityscapes
    "sky": [0],
    "construction": [1, 7],
    "object": [2, 6],
    "flat": [3, 4],
    "nature": [5],
    "vehicle": [8],
    "human": [9, 10],
}
DRIVES = (
    "CamVid at 120 x 88 pixels, 11 classes: trained on the drives {drives}, validated on 0006R0"
    " (101 images), tested on the 101 images of `val`, which are from 0016E5; each batch is"
    " rescaled by a random factor between 0.5 and 1 and flipped at random. Seeds differ in the"
    " newly initialised weights and in the batches, not in the images. Base:"
)


def camvid_folder() -> dict[str, Any]:
    """The folder that --camvid names; raises with what to do if there is none."""
    folder = os.environ.get(CAMVID)
    if folder is None:
        raise SkippedError(
            "CamVid cannot be fetched; give its folder, with train/ and val/, as --camvid FOLDER."
        )
    return {"folder": folder}


def read_camvid(setting: Settings, seed: int) -> Dataset[Part]:
    """By drives; the images as the published weights know them."""
    arrays = camvid(Path(setting["folder"]), "0016E5" in setting["drives"])
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (MEAN, DEVIATION))

    def part(name: str) -> Part:
        images = torch.from_numpy(arrays[f"{name}inputs"]).movedim(-1, 1)
        target = torch.from_numpy(arrays[f"{name}target"]).long()
        return Part(((images - mean) / deviation).contiguous(), target)

    return Dataset(part(""), part("val_"), part("test_"))


def encoder_unet(setting: Settings) -> nn.Module:
    """With the published weights in its encoder, but for the tests' tiny one."""
    network = EfficientNetUNet(3, len(ROADS), 16 if setting["pretrained"] else 2)
    if setting["pretrained"]:
        load_weights(network, place(*EFFICIENTNET))
    return slow_norms(network)


def slow_norms(network: nn.Module) -> nn.Module:
    """Batch norms with means over some fifty batches, for each batch has a size of its own; in the
    order of memory that takes the least time on CPUs.
    """
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.02
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _roads(name: str, title: str, drives: str, iterations: Counts, **more: Any) -> DataSet:
    lengths = zip(("tiny", "default"), iterations, strict=True)
    sizes = {
        size: {"drives": drives, "pretrained": size != "tiny", "iterations": n}
        for size, n in lengths
    }
    how: Any = {"void": 255, "rescaled": True, "where": camvid_folder, "title": title, **more}
    return DataSet(name, ROADS, sizes, read=read_camvid, **how)


ENCODER: Any = {"build": encoder_unet, "batch": 8, "rate": 0.002}
ENCODER["words"] = f"{DRIVES} a U-Net on an EfficientNet-Lite0 pretrained on ImageNet"
BOTH, LENGTHS = "0001TP and 0016E5", (2, 2000)
SHARED = _roads("camvid", "on CamVid", BOTH, LENGTHS, **ENCODER)
APART = _roads("camvid apart", "on CamVid without the shared drive", "0001TP", LENGTHS, **ENCODER)
CAMVID_ENET = _roads(
    "camvid enet",
    "on CamVid",
    BOTH,
    (1, 2000),
    words=f"{DRIVES} an ENet with random weights",
    build=lambda setting: slow_norms(ENet(3, len(ROADS))),
    batch=10,
    rate=0.005,
    weighted=True,
    categories=ROAD_CATEGORIES,
)
DATA_SETS = {one.name: one for one in (SCENES, SHARED, APART, CAMVID_ENET)}
