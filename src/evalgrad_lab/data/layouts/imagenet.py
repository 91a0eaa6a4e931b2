"""ImageNet as one folder per class: train/<wordnet id>/*.JPEG and val/<wordnet id>/*.JPEG."""

from pathlib import Path

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.layouts.images import existing, found, labelled_images


def imagenet(root: Path, split: str) -> Examples:
    """The images of a split; classes are numbered as the sorted folders of `train`."""
    pairs = []
    for c, name in enumerate(class_folders(root)):
        folder = existing(root / split / name, f"the {split} images of class {name}")
        pairs += [(path, c) for path in sorted(folder.glob("*.JPEG"))]
    return labelled_images(pairs)


def class_folders(root: Path) -> list[str]:
    """The names of the classes, WordNet's numbers."""
    train = existing(root / "train", "one folder per class")
    folders = (path for path in train.iterdir() if path.is_dir())
    return [folder.name for folder in found(folders, train, "folder of a class")]
