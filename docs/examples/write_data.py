"""Write two small data sets of scikit-learn's own data, in the forms that `evalgrad train` reads.

`digits/images` and `digits/masks`: handwritten digits in noise, class d + 1 where there is ink of
the digit d. `tumours.csv`: a table with the column `target`.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits


def write_digits(folder: Path, count: int) -> None:
    generator, data = np.random.default_rng(0), load_digits()
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        ink = data.images[i].repeat(2, 0).repeat(2, 1) / 16
        image = 40 + 160 * ink + generator.normal(0, 20, ink.shape)
        mask = np.where(ink > 0.3, data.target[i] + 1, 0)
        for part, values in (("images", image), ("masks", mask)):
            Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(
                folder / part / f"{i:04}.png"
            )


def write_tumours(path: Path) -> None:
    data = load_breast_cancer()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "target"])
        # 1 = malignant
        writer.writerows(
            [*row, 1 - label] for row, label in zip(data.data, data.target, strict=True)
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=600, help="number of digits (600)")
    options = parser.parse_args()
    write_digits(options.folder / "digits", options.count)
    write_tumours(options.folder / "tumours.csv")
