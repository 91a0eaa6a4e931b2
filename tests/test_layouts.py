"""The official layouts of the papers' data sets, on tiny folders that the tests write in the same
layout.
"""

import layout_folders as folders
import numpy as np
import pytest
import torch
from scipy.io import savemat

from evalgrad_lab.data.files.folders import read_image
from evalgrad_lab.data.layouts.image_classes import cifar10, cifar100, imagenet
from evalgrad_lab.data.layouts.images import IGNORE
from evalgrad_lab.data.layouts.label_maps import (
    CITYSCAPES,
    IDS,
    cityscapes,
    coco_sky,
    coco_stuff,
    voc,
)
from evalgrad_lab.data.layouts.voc_regions import overlaps, voc_regions
from evalgrad_lab.errors import UserError


def stripes(target):
    """The classes from left to right."""
    return list(dict.fromkeys(target[0].tolist()))


def test_cityscapes_has_the_evaluated_classes(tmp_path):
    folders.write_cityscapes(tmp_path)
    samples = cityscapes(tmp_path, "val")
    assert len(samples) == 3
    assert samples.inputs[0].shape == (3, *folders.SIZE)
    assert stripes(samples.target[0]) == [0, IGNORE, 13, 18]  # road, unlabelled, car, bicycle
    assert len(IDS) == len(CITYSCAPES) == 19


def test_voc_reads_the_indices_of_the_palette_and_its_own_lists(tmp_path):
    folders.write_voc(tmp_path)
    samples = voc(tmp_path, "val")
    assert samples.names == ["2007_000003", "2007_000004"]
    assert stripes(samples.target[1]) == [0, 15, IGNORE]


def test_voc_with_sbd_leaves_out_the_validation_images(tmp_path):
    folders.write_voc(tmp_path)
    samples = voc(tmp_path, "trainaug")
    assert samples.names == [
        "2007_000001",
        "2007_000002",
        "2008_000001",
        "2008_000002",
    ]
    assert stripes(samples.target[0]) == [0, 15, IGNORE]
    assert stripes(samples.target[2]) == [0, 20]


def test_voc_regions_show_the_class_where_they_overlap_its_boxes(tmp_path):
    folders.write_voc_regions(tmp_path)
    samples = voc_regions(tmp_path, "train", label="aeroplane")
    # the same box; the dog; a region of 15 of the 20 rows
    assert samples.target.tolist() == [1, 0, 1] * 2
    assert voc_regions(tmp_path, "train", label="dog").target.tolist() == [0, 1, 0] * 2
    image = samples.inputs[0]
    whole = read_image(next((tmp_path / "VOCdevkit").rglob("2008_000001.jpg")), grey=False)
    # 16 pixels around, cut at the border above and on the left
    assert torch.equal(image, whole[:, : 28 + 16, : 24 + 16])
    assert torch.equal(samples.inputs[1], whole[:, : 28 + 16, 30 - 1 - 16 :])
    assert samples.inputs[3].shape == image.shape
    assert not torch.equal(samples.inputs[3], image)  # of the second image


def test_overlaps_are_shared_pixels_over_all_pixels():
    first = torch.tensor([[1.0, 1, 4, 5], [9, 9, 9, 9]])
    found = overlaps(first, torch.tensor([[3.0, 2, 6, 5]]))
    assert found.flatten().tolist() == pytest.approx([2 * 4 / (4 * 5 + 4 * 4 - 2 * 4), 0])
    assert overlaps(first, torch.empty(0, 4)).shape == (2, 0)


def bombed(root):
    folders.write_voc_regions(root)
    path = root / "VOCdevkit/VOC2012/Annotations/2008_000001.xml"
    # 10^29 times "ha"
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha"}">' for n in range(30))
    path.write_text(
        f"<!DOCTYPE annotation [{entities}]>" + path.read_text().replace("dog", "&a29;")
    )
    voc_regions(root, "train", label="dog")


def without_box(root):
    folders.write_voc_regions(root)
    path = root / "VOCdevkit/VOC2012/Annotations/2008_000001.xml"
    path.write_text(path.read_text().replace("<xmin>30</xmin>", ""))
    voc_regions(root, "train", label="dog")


def regions_of_another_split(root):
    folders.write_voc_regions(root)
    (root / "selective_search_data/voc_2012_val.mat").replace(
        root / "selective_search_data/voc_2012_train.mat"
    )
    voc_regions(root, "train", label="dog")


def no_cells(root):
    folders.write_voc_regions(root)
    savemat(root / "selective_search_data/voc_2012_train.mat", {"boxes": np.zeros((2, 4))})
    voc_regions(root, "train", label="dog")


def test_coco_stuff_and_its_sky(tmp_path):
    folders.write_coco_stuff(tmp_path)
    assert stripes(coco_stuff(tmp_path, "train").target[0]) == [0, 156, 181, IGNORE]
    assert stripes(coco_sky(tmp_path, "val").target[1])[:2] == [0, 1]
    assert coco_sky(tmp_path, "val").target[0].unique().tolist() == [0, 1, IGNORE]


def test_cifar_splits_and_labels(tmp_path):
    pixels = folders.write_cifar(tmp_path)
    train, held, test = (cifar100(tmp_path, split) for split in ("train", "val", "test"))
    assert (len(train), len(held), len(test)) == (10, 5000, 20)
    image = held.inputs[3]
    assert held.target[3].item() == 13
    torch.testing.assert_close(
        image * 255, torch.tensor(pixels[13].reshape(3, 32, 32), dtype=torch.float32)
    )
    assert len(cifar10(tmp_path, "trainval")) == 5010
    assert cifar10(tmp_path, "test").target[12].item() == 2


def test_imagenet_counts_classes_in_the_order_of_their_ids(tmp_path):
    folders.write_imagenet(tmp_path)
    samples = imagenet(tmp_path, "val")
    assert samples.target.tolist() == [0, 0, 1, 1, 2, 2]
    assert samples.inputs[4].shape == (3, *folders.SIZE)


def broken_cityscapes(root):
    folders.write_cityscapes(root)
    next((root / "gtFine" / "val").rglob("*.png")).unlink()
    return cityscapes(root, "val")


def empty_cityscapes(root):
    (root / "leftImg8bit" / "val").mkdir(parents=True)
    return cityscapes(root, "val")


def unreadable_image(root):
    folders.write_imagenet(root)
    (root / "val" / "n01440764" / "n01440764_0.JPEG").write_bytes(b"not an image")
    return imagenet(root, "val").inputs[0]


def coloured_mask(root):
    folders.write_coco_stuff(root)
    path = next((root / "stuffthingmaps_trainval2017" / "val2017").glob("*.png"))
    folders.photograph(path, 0)
    return coco_stuff(root, "val").target[0]


def small_mask(root):
    folders.write_coco_stuff(root)
    path = next((root / "stuffthingmaps_trainval2017" / "val2017").glob("*.png"))
    folders.draw(path, np.zeros((4, 4), dtype=np.uint8))
    samples = coco_stuff(root, "val")
    return [samples.target[index] for index in range(len(samples))]


def other_matlab_file(root):
    folders.write_voc(root)
    savemat(root / "benchmark_RELEASE" / "dataset" / "cls" / "2008_000001.mat", {"other": 1})
    return voc(root, "trainaug").target[2]


def short_batch(root):
    folders.write_cifar(root)
    (root / "cifar-100-binary" / "test.bin").write_bytes(b"x" * 100)
    return cifar100(root, "test")


def other_split(root):
    folders.write_cifar(root)
    return cifar10(root, "dev")


def missing_class(root):
    folders.write_imagenet(root)
    (root / "val" / "n02102040").rename(root / "val" / "other")
    return imagenet(root, "val")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            lambda root: cityscapes(root, "val"),
            r"leftImg8bit/val is missing: it must hold the images of the val split. Point --data",
        ),
        (empty_cityscapes, r"leftImg8bit/val holds no \*/\*_leftImg8bit.png"),
        (broken_cityscapes, r"_gtFine_labelIds.png is missing: it must hold the mask of aachen_"),
        (lambda root: voc(root, "val"), r"VOCdevkit/VOC2012 is missing"),
        (
            other_matlab_file,
            (
                r"2008_000001.mat must be a MATLAB file with GTcls.Segmentation. Take it from SBD's"
                r" folder cls."
            ),
        ),
        (
            bombed,
            (
                r"2008_000001.xml must not have a DOCTYPE. Take the annotation as Pascal VOC"
                r" publishes it."
            ),
        ),
        (
            without_box,
            (
                r"2008_000001.xml must be an annotation with a bndbox in every object: could not"
                r" convert .*Replace the file."
            ),
        ),
        (
            regions_of_another_split,
            (
                r"the regions of train lack the image 2008_000001. Take R-CNN's file of the same"
                r" split."
            ),
        ),
        (
            no_cells,
            (
                r"voc_2012_train.mat must be a MATLAB file with the cells images and boxes. Take"
                r" R-CNN's file."
            ),
        ),
        (lambda root: coco_stuff(root, "val"), r"val2017 is missing: it must hold the val images"),
        (
            coloured_mask,
            r"must have one channel that holds class indices; got the colour mode RGB.",
        ),
        (small_mask, r"must be of the size of .*; got \(4, 4\) and \(48, 64\)"),
        (
            lambda root: cifar100(root, "test"),
            r"cifar-100-binary is missing: it must hold the binary version, not the Python one",
        ),
        (
            short_batch,
            r"test.bin must hold records of 3074 bytes; got 100 bytes. Unpack the archive again.",
        ),
        (other_split, r"the split must be one of train, val, trainval, test; got dev."),
        (
            missing_class,
            r"val/n02102040 is missing: it must hold the val images of class n02102040",
        ),
        (unreadable_image, r"n01440764_0.JPEG cannot be read as an image .*Replace or remove it."),
    ],
)
def test_messages(tmp_path, broken, message):
    with pytest.raises(UserError, match=message):
        broken(tmp_path)
