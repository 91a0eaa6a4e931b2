"""Small data sets that the tests of `evalgrad train` write."""

import csv

import numpy as np
from PIL import Image


def write_segmentation(path, count=20, size=16, seed=0):
    """Noisy grey images with a bright block of class 1 and a brighter spot of class 2, and their
    masks.
    """
    generator = np.random.default_rng(seed)
    for folder in ("images", "masks"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        mask = np.zeros((size, size), np.uint8)
        for label, side in ((1, 6), (2, 3)):
            top, left = generator.integers(0, size - side, 2)
            mask[top : top + side, left : left + side] = label
        image = (40 + 80 * mask + generator.normal(0, 20, mask.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(image).save(path / "images" / f"{i:02}.png")
        Image.fromarray(mask).save(path / "masks" / f"{i:02}.png")
    return path


def table(count=120, seed=0):
    """Rows of three numbers; the first and the second decide the target, the group is one
    of six.
    """
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3))
    target = (x[:, 0] + x[:, 1] + 0.3 * generator.normal(size=count) > 0.8).astype(int)
    return x, target, np.arange(count) % 6


def write_table(path, target_name="target", words=False):
    x, target, group = table()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", target_name, "query"])
        for row, label, number in zip(x, target, group):
            writer.writerow([*row, ("no", "yes")[label] if words else label, f"q{number}"])
    return path


def write_colours(path, count=6, size=12, seed=0):
    """Images in one folder per class: red, green and blue ones."""
    generator = np.random.default_rng(seed)
    for channel, name in enumerate(("red", "green", "blue")):
        (path / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            image = generator.integers(0, 100, (size, size, 3), dtype=np.uint8)
            image[..., channel] += 120
            Image.fromarray(image).save(path / name / f"{i}.png")
    return path
