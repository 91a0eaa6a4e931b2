"""ImageNet as one folder per class: train/<wordnet id>/*.JPEG and val/<wordnet id>/*.JPEG."""

from pathlib import Path

from evalgrad_lab.data.layouts.images import LabelledImages, existing, found


def imagenet(root: Path, split: str) -> LabelledImages:
    """The images of a split; a class is the place of its folder among the sorted folders of
    `train`.
    """
    train = existing(root / "train", "one folder per class")
    names = [
        folder.name
        for folder in found(
            (path for path in train.iterdir() if path.is_dir()), train, "folder of a class"
        )
    ]
    folders = [
        existing(root / split / name, f"the {split} images of class {name}") for name in names
    ]
    return LabelledImages(
        [
            (path, label)
            for label, folder in enumerate(folders)
            for path in sorted(folder.glob("*.JPEG"))
        ]
    )
