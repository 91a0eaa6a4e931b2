"""The samples of a full setting: read in the official layout, resized, augmented, normalised, in
batches.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

import evalgrad as eg
from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.layouts.cifar import cifar10, cifar100
from evalgrad_lab.data.layouts.cityscapes import cityscapes
from evalgrad_lab.data.layouts.coco_stuff import coco_sky, coco_stuff
from evalgrad_lab.data.layouts.imagenet import imagenet
from evalgrad_lab.data.layouts.images import IGNORE, Regions, Samples
from evalgrad_lab.data.layouts.voc import voc
from evalgrad_lab.data.layouts.voc_regions import voc_regions
from evalgrad_lab.errors import UserError
from reproductions.configs import Config

LAYOUTS: dict[str, Callable[..., Samples]] = {
    "cityscapes": cityscapes,
    "voc": voc,
    "voc_regions": voc_regions,
    "coco_stuff": coco_stuff,
    "coco_sky": coco_sky,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet": imagenet,
}
# of ImageNet's colours
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
PREPARATION = {"train", "validation", "layout", "resize", "augment", "crop", "sampler"}


class Prepared(Dataset[tuple[Tensor, Tensor]]):
    """Samples resized, augmented and normalised. Every item draws from torch's own generator, which
    the workers seed.

    The mode is one of `augment`, or "centre": the square in the middle, for the validation of whole
    images with a class.
    """

    def __init__(
        self, samples: Samples, resize: int | list[int] | None, mode: str, crop: int | None
    ) -> None:
        self.samples, self.resize, self.mode, self.crop = samples, resize, mode, crop

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, target = self.samples[index]
        if self.resize is not None:
            image, target = resized(image, target, self.resize)
        if self.mode == "centre":
            image = central(image, self.crop)
        else:
            generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
            image, target = augment(image, target, generator, self.mode, self.crop, IGNORE)
        return (image - MEAN[:, None, None]) / DEVIATION[:, None, None], target


def central(image: Tensor, crop: int | None) -> Tensor:
    """The square of side `crop` in the middle; None leaves the image whole."""
    if crop is None:
        return image
    top, left = ((side - crop) // 2 for side in image.shape[-2:])
    return image[..., top : top + crop, left : left + crop]


def resized(image: Tensor, target: Tensor, size: int | list[int]) -> tuple[Tensor, Tensor]:
    """To a height and width, or so that the smaller side has `size` pixels; a label map alike,
    without mixing labels.
    """
    if isinstance(size, int):
        scale = size / min(image.shape[-2:])
        size = [round(side * scale) for side in image.shape[-2:]]
    if target.ndim:
        target = F.interpolate(target[None, None].float(), size=size, mode="nearest")[0, 0].long()
    return F.interpolate(image[None], size=size, mode="bilinear", antialias=True)[0], target


def prepared(config: Config, root: Path, split: str, *, dry: bool) -> Prepared:
    """The samples of `train` or `validation`; a dry run cuts large images to 64 pixels, whatever
    the setting says.
    """
    data = config.data
    if data["layout"] not in LAYOUTS:
        raise UserError(
            f"config: the layout must be one of {', '.join(LAYOUTS)}; got {data['layout']}."
        )
    options = {key: value for key, value in data.items() if key not in PREPARATION}
    samples = LAYOUTS[data["layout"]](root, data[split], **options)
    if dry:
        return Prepared(
            samples, None, data["augment"], 64 if data["resize"] or data["crop"] else None
        )
    if split == "train":
        return Prepared(samples, data["resize"], data["augment"], data["crop"])
    if config.metric == "top5":
        return Prepared(samples, data["resize"], "centre", data["crop"])
    return Prepared(samples, data["resize"], "none", None)


def loader(
    config: Config, samples: Prepared, split: str, batch: int, workers: int
) -> DataLoader[Any]:
    """Batches; segmentation is validated image by image, because the sizes differ."""
    if split == "validation":
        return DataLoader(
            samples, batch_size=1 if config.metric == "miou" else batch, num_workers=workers
        )
    if config.data["sampler"] == "equibatch":
        presence = eg.class_presence(
            samples.samples, num_classes=config.model["outputs"], ignore_index=IGNORE
        )
        classes = presence.any(0).nonzero().flatten().tolist()
        sampler = eg.EquibatchSampler(presence, classes=classes)
        return DataLoader(
            samples, batch_size=batch, sampler=sampler, num_workers=workers, drop_last=True
        )
    if config.data["sampler"] == "quarter_positive":
        if not isinstance(samples.samples, Regions):
            raise UserError(
                "config: the sampler quarter_positive needs the layout voc_regions; got"
                f" {config.data['layout']}."
            )
        chances: Any = quarter_positive(samples.samples.target)
        drawn = WeightedRandomSampler(chances, len(samples))
        return DataLoader(
            samples, batch_size=batch, sampler=drawn, num_workers=workers, drop_last=True
        )
    return DataLoader(samples, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True)


def quarter_positive(target: Tensor) -> Tensor:
    """The chance of each example, so that positives are a quarter of what is drawn."""
    positive = int(target.sum())
    if not 0 < positive < len(target):
        raise UserError(
            f"config: the training regions must be of both kinds; got {positive} of {len(target)}"
            " with the label."
        )
    return torch.where(target > 0, 0.25 / positive, 0.75 / (len(target) - positive))
