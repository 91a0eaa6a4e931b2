"""The arrays of the tasks, as `.npz` files have them: `inputs` and `target`, and the parts that are
not to be drawn. `make data` fetches what is not embedded.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, relabelled
from evalgrad_lab.data.embedded import digits
from evalgrad_lab.data.fetched import NotFetchedError, labelled, mapped
from evalgrad_lab.data.files.folders import list_images, read_image, read_mask

Arrays = dict[str, Any]


def parts(data: Dataset[Part]) -> Arrays:
    """The parts as they are: images (N, H, W, channels) between 0 and 1, and label maps."""
    named = {"": data.train, "val_": data.validation, "test_": data.test}
    every = torch.cat([part.inputs for part in named.values()])
    low, high = every.amin((0, 2, 3), keepdim=True), every.amax((0, 2, 3), keepdim=True)
    found: Arrays = {}
    for name, part in named.items():
        inputs = ((part.inputs - low) / (high - low)).movedim(1, -1)
        found[f"{name}inputs"] = inputs.squeeze(-1).numpy()
        found[f"{name}target"] = part.target.numpy()
    return found


def _rows(inputs: Tensor, target: Tensor) -> Arrays:
    return {"inputs": inputs.flatten(1).numpy(), "target": target.numpy()}


def pairs(data: Dataset[Part]) -> Arrays:
    """With the test part clean, as the data have it."""
    return {
        **_rows(torch.cat([data.train.inputs, data.validation.inputs]), _labels(data)),
        "test_inputs": data.test.inputs.flatten(1).numpy(),
        "test_target": data.test.target.numpy(),
    }


def _labels(data: Dataset[Part]) -> Tensor:
    return torch.cat([data.train.target, data.validation.target])


def keel(name: str) -> Arrays:
    """A table of KEEL."""
    part = labelled.table(name)
    return _rows(part.inputs, part.target)


def _earth(side: int, count: int) -> tuple[Tensor, Tensor]:
    """Squares with land and with water."""
    colours, classes = mapped.earth()
    images = colours.unfold(1, side, side).unfold(2, side, side).flatten(1, 2).movedim(0, 1)
    labels = classes.unfold(0, side, side).unfold(1, side, side).flatten(0, 1)
    mixed = torch.nonzero(((labels == 1).float().mean((1, 2)) - 0.5).abs() < 0.45)[:, 0]
    order = mixed[torch.randperm(len(mixed), generator=torch.Generator().manual_seed(0))[:count]]
    return images[order], labels[order]


def earth(lakes: bool) -> Arrays:
    """Ocean, land and lakes, or land alone."""
    images, labels = _earth(32, 900)
    target = labels if lakes else (labels == 1).long()
    return {"inputs": images.movedim(1, -1).numpy(), "target": target.numpy()}


def one_digit(swapped: float, digit: int) -> Arrays:
    """One digit against the rest; `swapped` is the share of its labels given to others."""
    data = digits.noisy_digits(0, swapped=swapped)
    one = Dataset(
        *(Part(p.inputs, p.target[:, digit]) for p in (data.train, data.validation, data.test))
    )
    return pairs(one)


def long_tail(images: Part, target_of_most: int, tail: float) -> Arrays:
    """Fewer and fewer examples of each class."""
    kept = []
    for label in range(10):
        places = torch.nonzero(images.target == label)[:, 0]
        kept.append(places[: round(target_of_most * tail ** -(label / 9))])
    chosen = torch.cat(kept)
    return _rows(images.inputs[chosen], images.target[chosen])


@cache
def _photographs() -> list[Part]:
    """CIFAR-10 at 8x8 pixels, (n, 8, 8 * 3): two fifths of its training part, and its test part."""
    train, test = (
        Part(F.avg_pool2d(part.inputs, 4).movedim(1, -1).flatten(2), part.target)
        for part in labelled.cifar10()
    )
    return [*(Part(train.inputs[i::5], train.target[i::5]) for i in (0, 1)), test]


def cifar_pairs(seed: int, sizes: Sizes, *, noise: float) -> Dataset[Part]:
    """Two photographs side by side, flat (n, 8 * 16 * 3), 100 classes in groups of five; labels
    are noisy but for the test. The photographs of a part are the same for all seeds.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = zip(_photographs(), sizes, strict=True)
    clean = Dataset(*(digits.pairs_of(pool, count, generator) for pool, count in counts))
    return relabelled(clean, lambda target: digits.within_group(target, noise, generator))


def brain() -> Arrays:
    """Slices of one half of a brain to train on, of the other to validate and test on, in turns of
    five: background and four structures.
    """
    volume, classes = mapped.brain()
    structures = (classes + 1) // 2  # left and right are one
    used = [z for z in range(classes.shape[2]) if bool((structures[..., z] > 0).any())]
    middle = len(volume) // 2

    def half(of: Tensor, mirrored: bool) -> Tensor:
        side = of[middle + 1 :] if mirrored else of[:middle].flip(0)
        return side[:64, 70:166, used].movedim(-1, 0).contiguous()

    left, right = (
        Part(half(volume, mirrored)[:, None], half(structures, mirrored))
        for mirrored in (False, True)
    )
    turn = torch.arange(len(used)) // 5 % 2 == 0
    others = (Part(right.inputs[chosen], right.target[chosen]) for chosen in (turn, ~turn))
    return parts(Dataset(left, *others))


def camvid(folder: Path | None, shared_drive: bool) -> Arrays:
    """Road scenes of 120x88 pixels. The test part is a drive of which half may be trained on, the
    `shared_drive`; what is chosen is chosen on a drive of its own.
    """
    if folder is None:
        raise NotFetchedError("give its folder, with train/ and val/, as --camvid FOLDER.")
    files = list_images(folder / "train" / "images")
    drives = ("0001TP", "0016E5") if shared_drive else ("0001TP",)
    train = [file for file in files if file.name.startswith(drives)]
    validation = [file for file in files if file.name.startswith("0006R0")]
    chosen = (train, validation, list_images(folder / "val" / "images"))
    return parts(Dataset(*(_half_size(part) for part in chosen)))


def _half_size(files: list[Path]) -> Part:
    images = torch.stack([read_image(file, grey=False) for file in files])
    names = ((file.parents[1] / "masks" / file.name).with_suffix(".png") for file in files)
    labels = torch.stack([read_mask(name) for name in names])
    return Part(F.avg_pool2d(images, 2)[:, :, :88], labels[:, ::2, ::2][:, :88])
