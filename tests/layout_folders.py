"""Tiny folders in the official layouts, for the tests of the layouts and of the full settings."""

import gzip
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

SIZE = (48, 64)  # height, width


def draw(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def photograph(path: Path, seed: int, size: tuple[int, int] = SIZE) -> None:
    """A picture of noise, saved whatever its ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, format="PNG" if path.suffix == ".png" else "JPEG")


def classes(*values: int) -> np.ndarray:
    """Vertical stripes of the given classes."""
    return np.repeat(np.array(values, dtype=np.uint8), -(-SIZE[1] // len(values)))[: SIZE[1]][
        None
    ].repeat(SIZE[0], axis=0)


def write_cityscapes(root: Path) -> None:
    for split in ("train", "val"):
        for number in range(3):
            stem = f"aachen_{number + 3 * (split == 'val'):06}_000019"
            photograph(root / "leftImg8bit" / split / "aachen" / f"{stem}_leftImg8bit.png", number)
            draw(
                root / "gtFine" / split / "aachen" / f"{stem}_gtFine_labelIds.png",
                classes(7, 0, 26, 33),
            )


def write_voc(root: Path) -> None:
    """VOC with two images for training and two for validation; SBD with three, one of them in VOC's
    validation.
    """
    base, sbd = root / "VOCdevkit" / "VOC2012", root / "benchmark_RELEASE" / "dataset"
    names = {"train": ["2007_000001", "2007_000002"], "val": ["2007_000003", "2007_000004"]}
    for split, listed in names.items():
        (base / "ImageSets" / "Segmentation").mkdir(parents=True, exist_ok=True)
        (base / "ImageSets" / "Segmentation" / f"{split}.txt").write_text("\n".join(listed) + "\n")
        for name in listed:
            photograph(base / "JPEGImages" / f"{name}.jpg", int(name[-1]))
            mask = Image.fromarray(classes(0, 15, 255))
            mask.putpalette([value for index in range(256) for value in (index, 255 - index, 7)])
            (base / "SegmentationClass").mkdir(exist_ok=True)
            mask.save(base / "SegmentationClass" / f"{name}.png")
    (sbd / "cls").mkdir(parents=True)
    for split, listed in {"train": ["2008_000001", "2007_000003"], "val": ["2008_000002"]}.items():
        (sbd / f"{split}.txt").write_text("\n".join(listed) + "\n")
        for name in listed:
            photograph(sbd / "img" / f"{name}.jpg", 9)
            savemat(
                sbd / "cls" / f"{name}.mat",
                {"GTcls": {"Segmentation": classes(0, 20), "Boundaries": 0}},
            )


OBJECT = (
    "<object><name>{}</name><difficult>{}</difficult>"
    "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"
)


def write_voc_regions(root: Path) -> None:
    """Two images in each split: an aeroplane at columns 5..24, rows 9..28, a dog and a difficult
    aeroplane; three regions.
    """
    base = root / "VOCdevkit" / "VOC2012"
    truth = [
        ("aeroplane", 0, 5, 9, 24, 28),
        ("dog", 0, 30, 9, 49, 28),
        ("aeroplane", 1, 50, 30, 60, 40),
    ]
    # top, left, bottom, right
    regions = np.array([[9, 5, 28, 24], [9, 30, 28, 49], [14, 5, 28, 24]])
    for split, names in {
        "train": ["2008_000001", "2008_000002"],
        "val": ["2008_000003", "2008_000004"],
    }.items():
        for folder in ("ImageSets/Main", "Annotations"):
            (base / folder).mkdir(parents=True, exist_ok=True)
        (base / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names) + "\n")
        for name in names:
            photograph(base / "JPEGImages" / f"{name}.jpg", int(name[-1]))
            text = "".join(OBJECT.format(*one) for one in truth)
            (base / "Annotations" / f"{name}.xml").write_text(f"<annotation>{text}</annotation>")
        (root / "selective_search_data").mkdir(exist_ok=True)
        boxes, images = (
            np.empty((1, len(names)), dtype=object),
            np.empty((len(names), 1), dtype=object),
        )
        for number, name in enumerate(reversed(names)):  # in an order of its own
            boxes[0, number], images[number, 0] = regions, name
        savemat(
            root / "selective_search_data" / f"voc_2012_{split}.mat",
            {"boxes": boxes, "images": images},
        )


def write_voc_actions(root: Path) -> None:
    """The images of `write_voc_regions` with two persons each, the first jumping; and four more."""
    write_voc_regions(root)
    base = root / "VOCdevkit" / "VOC2012"
    names = [f"2008_{number:06}" for number in range(1, 9)]
    (base / "ImageSets" / "Action").mkdir()
    lines = [f"{name}  {i}  {sign}" for name in names for i, sign in ((1, 1), (2, -1))]
    (base / "ImageSets" / "Action" / "jumping_trainval.txt").write_text("\n".join(lines) + "\n")
    for name in names:
        photograph(base / "JPEGImages" / f"{name}.jpg", int(name[-1]))
        text = OBJECT.format("person", 0, 5, 9, 24, 28) + OBJECT.format("person", 1, 30, 9, 49, 28)
        (base / "Annotations" / f"{name}.xml").write_text(f"<annotation>{text}</annotation>")


def nifti(values: np.ndarray, order: str = "<") -> bytes:
    """A volume as NIfTI-1 stores it, the first axis fastest."""
    codes = {"u1": 2, "i2": 4, "f4": 16}
    header = bytearray(352)
    header[:4] = np.array(348, f"{order}i4").tobytes()
    sides = [values.ndim, *values.shape, *[1] * (7 - values.ndim)]
    header[40:56] = np.array(sides, f"{order}i2").tobytes()
    header[70:72] = np.array(codes[values.dtype.str[1:]], f"{order}i2").tobytes()
    header[108:112] = np.array(352, f"{order}f4").tobytes()
    return bytes(header) + values.astype(values.dtype.newbyteorder(order)).tobytes(order="F")


def write_ibsr(root: Path) -> None:
    """18 volumes of 12 x 8 voxels and four slices, two of them with the left thalamus and the right
    pallidum.
    """
    for number in range(1, 19):
        name = f"IBSR_{number:02}"
        image = np.random.default_rng(number).integers(0, 900, (12, 8, 4)).astype(np.int16)
        codes = np.zeros((12, 8, 4, 1), np.uint8)
        codes[2:4, 2:4, 1:3], codes[8:10, 2:4, 1:3] = 10, 52
        (root / name).mkdir(parents=True)
        for end, values in (("ana_strip", image), ("seg_ana", codes)):
            (root / name / f"{name}_{end}.nii.gz").write_bytes(gzip.compress(nifti(values)))


def write_coco_stuff(root: Path) -> None:
    for split in ("train", "val"):
        for number in range(9, 16):
            photograph(root / f"{split}2017" / f"{split}{number:012}.jpg", number)
            # many small classes in every second one, no sky in the last
            many = range(150, 176) if number % 2 == 0 else ()
            stripes = classes(0, 181, 255) if number == 15 else classes(0, 156, 181, 255, *many)
            path = (
                root / "stuffthingmaps_trainval2017" / f"{split}2017" / f"{split}{number:012}.png"
            )
            draw(path, stripes)


def write_cifar(root: Path, images: int = 5010) -> np.ndarray:
    """Both binary versions; returns the pixels of CIFAR-100's training images."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images, 3072), dtype=np.uint8)
    fine = (np.arange(images) % 100).astype(np.uint8)[:, None]
    (root / "cifar-100-binary").mkdir(parents=True)
    (root / "cifar-10-batches-bin").mkdir()
    for name, count in (("train", images), ("test", 20)):
        records = np.concatenate([fine // 5, fine, pixels], 1)[:count]
        records.tofile(root / "cifar-100-binary" / f"{name}.bin")
    for number in range(1, 6):
        part = slice((number - 1) * images // 5, number * images // 5)
        np.concatenate([fine % 10, pixels], 1)[part].tofile(
            root / "cifar-10-batches-bin" / f"data_batch_{number}.bin"
        )
    np.concatenate([fine % 10, pixels], 1)[:20].tofile(
        root / "cifar-10-batches-bin" / "test_batch.bin"
    )
    return pixels


def write_imagenet(root: Path) -> None:
    """Three classes of two images, whose sizes differ."""
    for split in ("train", "val"):
        for label, name in enumerate(("n01440764", "n01443537", "n02102040")):
            for number in range(2):
                size = (SIZE[0] + 5 * number, SIZE[1])
                path = root / split / name / f"{name}_{split}_{number}.JPEG"
                photograph(path, 10 * label + number, size)
