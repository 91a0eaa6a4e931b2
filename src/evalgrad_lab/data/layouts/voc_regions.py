"""Parts of the images of Pascal VOC 2012. For detection: the regions that selective search
proposed, and which of them show an object of one class, or of which class. For actions: persons.
"""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.layouts.images import existing, regions
from evalgrad_lab.errors import UserError

FIRST = "aeroplane,bicycle,bird,boat,bottle,bus,car,cat,chair,cow"
SECOND = "diningtable,dog,horse,motorbike,person,pottedplant,sheep,sofa,train,tvmonitor"
VOC_OBJECTS = (*FIRST.split(","), *SECOND.split(","))
OVERLAP = 0.5  # a region that shares this much with an object, as IoU, shows it (R-CNN's rule)


def voc_regions(root: Path, split: str, *, label: str) -> Examples:
    """`train` or `val`; the regions are those of R-CNN's files,
    selective_search_data/voc_2012_<split>.mat.
    """
    object_number(label)
    return _proposed(root, split, lambda boxes, path: shows(boxes, read_objects(path, label)))


def voc_region_classes(root: Path, split: str) -> Examples:
    """The same regions with the class of the object that each overlaps most, 0 for background."""

    def classes(boxes: Tensor, path: Path) -> Tensor:
        best = [
            torch.cat([overlaps(boxes, read_objects(path, label)), torch.zeros(len(boxes), 1)], 1)
            for label in VOC_OBJECTS
        ]
        share, number = torch.stack([found.amax(1) for found in best]).max(0)
        return torch.where(share >= OVERLAP, number + 1, 0)

    return _proposed(root, split, classes)


def voc_actions(root: Path, split: str, *, label: str) -> Examples:
    """The persons of ImageSets/Action/<label>_<split>.txt, 1 for those in that action: a line names
    the image, the number of the object in its annotation, and 1 or -1.
    """
    base = existing(root / "VOCdevkit" / "VOC2012", "Pascal VOC 2012")
    listed = base / "ImageSets" / "Action" / f"{label}_{split}.txt"
    lines = existing(listed, f"the persons of the {split} split").read_text().splitlines()
    files, target = [], []
    for name, number, sign in (line.split() for line in lines if line.strip()):
        image = existing(base / "JPEGImages" / f"{name}.jpg", "the image of that name")
        objects = read_objects(base / "Annotations" / f"{name}.xml")
        if not 1 <= int(number) <= len(objects):
            raise UserError(
                f"{listed} names object {number} of {name}, which has {len(objects)}. Take both"
                " from the same release."
            )
        files.append((image, objects[int(number) - 1][None]))
        target.append(int(sign) > 0)
    return regions(files, torch.tensor(target).long())


def _proposed(root: Path, split: str, label: Callable[[Tensor, Path], Tensor]) -> Examples:
    """R-CNN's regions of a split; `label` says what they show, by the annotation of the image."""
    base = existing(root / "VOCdevkit" / "VOC2012", "Pascal VOC 2012")
    listed = base / "ImageSets" / "Main" / f"{split}.txt"
    names = existing(listed, f"the names of the {split} split").read_text().split()
    file = root / "selective_search_data" / f"voc_2012_{split}.mat"
    boxes = read_proposals(existing(file, "R-CNN's regions of that split"))
    if missing := [name for name in names if name not in boxes]:
        raise UserError(
            f"{root}: the regions of {split} lack the image {missing[0]}. Take R-CNN's file of the"
            " same split."
        )
    files, shown = [], []
    for name in names:
        image = existing(base / "JPEGImages" / f"{name}.jpg", "the image of that name")
        files.append((image, boxes[name]))
        shown.append(label(boxes[name], base / "Annotations" / f"{name}.xml"))
    return regions(files, torch.cat(shown).long())


def object_number(label: str) -> int:
    """The place of a class among the objects of VOC."""
    if label not in VOC_OBJECTS:
        raise UserError(
            f"--data-options: `label` must be one of {', '.join(VOC_OBJECTS)}; got {label!r}."
        )
    return VOC_OBJECTS.index(label)


def read_objects(path: Path, label: str | None = None) -> Tensor:
    """Boxes (n, 4) = left, top, right, bottom, inclusive, of the class, without difficult ones; of
    all objects in their order for None.
    """
    text = existing(path, "the annotation of that image").read_text("utf-8", errors="replace")
    # the only place where entities can be defined: expanding them could fill the memory
    if "<!DOCTYPE" in text:
        raise UserError(
            f"{path} must not have a DOCTYPE. Take the annotation as Pascal VOC publishes it."
        )
    try:
        every = ElementTree.fromstring(text).iter("object")
        kept = [item for item in every if label is None or _is_plain(item, label)]
        sides = ("xmin", "ymin", "xmax", "ymax")
        found = [[float(item.findtext(f"bndbox/{side}", "")) for side in sides] for item in kept]
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(
            f"{path} must be an annotation with a bndbox in every object: {error}. Replace the"
            " file."
        ) from error
    return torch.tensor(found).view(-1, 4)


def _is_plain(item: ElementTree.Element, label: str) -> bool:
    return item.findtext("name") == label and item.findtext("difficult") != "1"


def read_proposals(path: Path) -> dict[str, Tensor]:
    """Boxes (n, 4) as above by the name of the image. The file has top, left, bottom, right."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content, found = loadmat(path), {}
        pairs = zip(content["images"].ravel(), content["boxes"].ravel(), strict=True)
        for name, box in pairs:
            found[str(name[0])] = torch.from_numpy(box.astype("float32"))[:, [1, 0, 3, 2]]
        return found
    except (MatReadError, KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} must be a MATLAB file with the cells images and boxes. Take R-CNN's file."
        ) from error


def shows(regions: Tensor, objects: Tensor) -> Tensor:
    """(n,) bool: whether a region overlaps one of the objects enough."""
    return (overlaps(regions, objects) >= OVERLAP).any(1)


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """(n, m) IoU of boxes (n, 4) and (m, 4), whose last row and column belong to them."""
    a, b = first[:, None], second[None]
    sides = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2]) + 1
    shared = sides.clamp(min=0).prod(-1)
    areas = [(box[..., 2:] - box[..., :2] + 1).prod(-1) for box in (a, b)]
    return shared / (areas[0] + areas[1] - shared)
