"""Data sets with a class for every pixel.

- Cityscapes: leftImg8bit/<split>/<city>/*_leftImg8bit.png and
  gtFine/<split>/<city>/*_gtFine_labelIds.png.
- COCO-Stuff 164k: <split>2017/*.jpg and stuffthingmaps_trainval2017/<split>2017/*.png, pixels
  0..181 and 255 for unlabelled.
- Pascal VOC 2012 (VOCdevkit/VOC2012/...) and the SBD annotations that the papers add
  (benchmark_RELEASE/dataset/...).
"""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.folders import read_mask
from evalgrad_lab.data.layouts.images import IGNORE, existing, found, images_and_masks
from evalgrad_lab.data.layouts.voc_regions import object_number
from evalgrad_lab.errors import UserError

# The 19 classes of Cityscapes that are evaluated, as the ids of the label files
IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
STUFF = "road,sidewalk,building,wall,fence,pole,traffic light,traffic sign,vegetation,terrain,sky"
THINGS = "person,rider,car,truck,bus,train,motorcycle,bicycle"
CITYSCAPES = (*STUFF.split(","), *THINGS.split(","))
COCO_CLASSES = 182
SKY = 156  # "sky-other", id 157 in the list of labels, which counts from 1
VOC_CLASSES = 21


def cityscapes(root: Path, split: str) -> Examples:
    """The finely annotated images of `train`, `val` or `test`, classes 0..18 and `IGNORE`."""
    folder = existing(root / "leftImg8bit" / split, f"the images of the {split} split")
    images = found(folder.glob("*/*_leftImg8bit.png"), folder, "*/*_leftImg8bit.png")
    masks, pairs = root / "gtFine" / split, []
    for image in images:
        name = image.name.replace("_leftImg8bit.png", "_gtFine_labelIds.png")
        pairs.append((image, masks / image.parent.name / name))
    return images_and_masks(pairs, read_train_ids)


def read_train_ids(path: Path) -> Tensor:
    """The label file with its ids replaced by the classes that are evaluated."""
    table = torch.full((256,), IGNORE)
    table[list(IDS)] = torch.arange(len(IDS))
    return table[read_mask(path) % 256]


def coco_stuff(root: Path, split: str) -> Examples:
    """All images of `train` or `val`, with their 182 thing and stuff classes."""
    return images_and_masks(_coco_pairs(root, split))


def coco_sky(root: Path, split: str) -> Examples:
    """One class against the rest, as in the second experiment of the S-measures paper: 1 is sky.
    Images without it are left out, for which every map is read once.
    """
    shown = [pair for pair in _coco_pairs(root, split) if bool((read_mask(pair[1]) == SKY).any())]
    return images_and_masks(shown, partial(read_class, number=SKY))


def _coco_pairs(root: Path, split: str) -> list[tuple[Path, Path]]:
    images = existing(root / f"{split}2017", f"the {split} images")
    folder = root / "stuffthingmaps_trainval2017" / f"{split}2017"
    maps = existing(folder, f"the maps of the {split} images").glob("*.png")
    return [(images / f"{mask.stem}.jpg", mask) for mask in found(maps, folder, "*.png")]


def read_class(path: Path, number: int) -> Tensor:
    """1 where the class is, 0 elsewhere, `IGNORE` where nothing is labelled."""
    classes = read_either(path)
    return torch.where(classes == IGNORE, IGNORE, (classes == number).long())


def voc(root: Path, split: str) -> Examples:
    """`train`, `val`, `trainval`; `trainaug` adds images of SBD that are not in VOC's `val`."""
    return images_and_masks(_voc_split(root, split), read_either)


def voc_class(root: Path, split: str, *, label: str) -> Examples:
    """One class against the rest, as in section 4.2 of the Lovász-Softmax paper. Of `val` there are
    as many images without the class as with it, evenly spaced.
    """
    read = partial(read_class, number=1 + object_number(label))
    pairs = _voc_split(root, split)
    if split == "val":
        groups: tuple[list[int], list[int]] = ([], [])
        for i, (_, mask) in enumerate(pairs):
            groups[int((read(mask) == 1).any())].append(i)
        without, shown = groups
        count = min(len(without), len(shown))
        kept = {without[i * len(without) // count] for i in range(count)} | set(shown)
        pairs = [pair for i, pair in enumerate(pairs) if i in kept]
    return images_and_masks(pairs, read)


def _voc_split(root: Path, split: str) -> list[tuple[Path, Path]]:
    base = existing(root / "VOCdevkit" / "VOC2012", "Pascal VOC 2012")
    if split != "trainaug":
        return _voc_pairs(base, _names(_voc_list(base, split)))
    validation = set(_names(_voc_list(base, "val")))
    own = _names(_voc_list(base, "train"))
    extra = [name for name in _sbd_names(root) if name not in validation and name not in set(own)]
    return [*_voc_pairs(base, own), *_sbd_pairs(root, extra)]


def _voc_list(base: Path, split: str) -> Path:
    path = base / "ImageSets" / "Segmentation" / f"{split}.txt"
    return existing(path, f"the names of the {split} split")


def _names(path: Path) -> list[str]:
    return path.read_text().split()


def _voc_pairs(base: Path, names: list[str]) -> list[tuple[Path, Path]]:
    return [
        (base / "JPEGImages" / f"{name}.jpg", base / "SegmentationClass" / f"{name}.png")
        for name in names
    ]


def _sbd_names(root: Path) -> list[str]:
    base = existing(root / "benchmark_RELEASE" / "dataset", "the SBD annotations")
    parts = ("train", "val")
    lists = [existing(base / f"{part}.txt", f"the names of SBD's {part} split") for part in parts]
    return [name for path in lists for name in _names(path)]


def _sbd_pairs(root: Path, names: list[str]) -> list[tuple[Path, Path]]:
    base = root / "benchmark_RELEASE" / "dataset"
    return [(base / "img" / f"{name}.jpg", base / "cls" / f"{name}.mat") for name in names]


def read_either(path: Path) -> Tensor:
    """A mask of VOC (PNG) or of SBD (MATLAB)."""
    return read_sbd(path) if path.suffix == ".mat" else read_mask(path)


def read_sbd(path: Path) -> Tensor:
    """The field GTcls.Segmentation of an SBD file. The MATLAB format holds arrays, no code."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        classes = loadmat(path)["GTcls"]["Segmentation"][0, 0]
    except (MatReadError, KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} must be a MATLAB file with GTcls.Segmentation. Take it from SBD's folder cls."
        ) from error
    return torch.from_numpy(classes.astype("int64"))
