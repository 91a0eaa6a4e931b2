"""ImageNet as one folder per class: train/<wordnet id>/*.JPEG and val/<wordnet id>/*.JPEG."""

from pathlib import Path

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.layouts.images import existing, found, labelled_images


def imagenet(root: Path, split: str) -> Examples:
    """The images of a split; classes are numbered as the sorted folders of `train`."""
    folders = [
        existing(root / split / name, f"the {split} images of class {name}")
        for name in class_folders(root)
    ]
    pairs = [
        (path, c) for c, folder in enumerate(folders) for path in sorted(folder.glob("*.JPEG"))
    ]
    return labelled_images(pairs)


def class_folders(root: Path) -> list[str]:
    """The names of the classes, WordNet's numbers."""
    train = existing(root / "train", "one folder per class")
    folders = (path for path in train.iterdir() if path.is_dir())
    return [folder.name for folder in found(folders, train, "folder of a class")]
