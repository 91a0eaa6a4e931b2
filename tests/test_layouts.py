"""The official layouts of the papers' data sets, on tiny folders that the tests write in the same
layout.
"""

import layout_folders as folders
import numpy as np
import pytest
import torch
from scipy.io import savemat

from evalgrad_lab.data.dataset import set_aside
from evalgrad_lab.data.files.folders import read_image
from evalgrad_lab.data.files.nifti import read_nifti
from evalgrad_lab.data.layouts.image_classes import cifar10, cifar100, imagenet
from evalgrad_lab.data.layouts.images import IGNORE, resized
from evalgrad_lab.data.layouts.label_maps import (
    CITYSCAPES,
    IDS,
    cityscapes,
    coco_sky,
    coco_stuff,
    voc,
    voc_class,
)
from evalgrad_lab.data.layouts.voc_regions import (
    overlaps,
    voc_actions,
    voc_region_classes,
    voc_regions,
)
from evalgrad_lab.data.layouts.volumes import IBSR_CLASSES, ibsr
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
    assert (len(coco_stuff(tmp_path, "val")), len(coco_sky(tmp_path, "val"))) == (7, 6)


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


def test_imagenet_holds_out_images_of_every_class_and_takes_subsets(tmp_path):
    folders.write_imagenet(tmp_path)
    train, held = (imagenet(tmp_path, split, held_out=1) for split in ("train", "held_out"))
    assert train.target.tolist() == held.target.tolist() == [0, 1, 2]
    assert sorted(train.names + held.names) == sorted(imagenet(tmp_path, "train").names)
    assert len(imagenet(tmp_path, "val", held_out=1, per_class=1)) == 6
    assert imagenet(tmp_path, "train", per_class=1).names == train.names


def test_cifar_noise_as_in_the_text_and_as_in_the_code(tmp_path):
    folders.write_cifar(tmp_path)
    path = tmp_path / "cifar-100-binary" / "train.bin"
    records = np.fromfile(path, np.uint8).reshape(-1, 3074)
    records[:, 0] = records[:, 1] % 20  # coarse classes that are no fives of fine ones
    records.tofile(path)
    clean = cifar100(tmp_path, "val").target
    coarse, fives = (cifar100(tmp_path, "val", noise=1.0, groups=g) for g in ("coarse", "fives"))
    assert torch.equal(coarse.target % 20, clean % 20)
    assert torch.equal(fives.target // 5, clean // 5)
    assert not torch.equal(coarse.target, clean)
    other = cifar100(tmp_path, "val", noise=1.0, noise_seed=1).target
    assert not torch.equal(other, coarse.target)
    kept = cifar100(tmp_path, "val", noise=1.0, clean_validation=True)
    assert torch.equal(kept.target, clean)
    pixels = torch.stack([kept.inputs[i] for i in range(len(kept))])
    assert kept.known.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert kept.known.std == pytest.approx(pixels.std((0, 2, 3)).tolist(), abs=1e-4)


def test_voc_of_one_class_has_as_many_validation_images_without_it(tmp_path):
    folders.write_voc(tmp_path)
    base = tmp_path / "VOCdevkit" / "VOC2012"
    names = [f"2007_00001{i}" for i in range(5)]
    for i, name in enumerate(names):
        folders.photograph(base / "JPEGImages" / f"{name}.jpg", i)
        folders.draw(base / "SegmentationClass" / f"{name}.png", folders.classes(0, 7))
    with (base / "ImageSets" / "Segmentation" / "val.txt").open("a") as listed:
        listed.write("\n".join(names))
    samples = voc_class(tmp_path, "val", label="person")
    assert samples.names == ["2007_000003", "2007_000004", "2007_000010", "2007_000012"]
    assert [stripes(samples.target[i]) for i in (0, 2)] == [[0, 1, IGNORE], [0]]
    train = voc_class(tmp_path, "trainaug", label="tvmonitor")
    assert (len(train), stripes(train.target[2])) == (4, [0, 1])  # of SBD, which has class 20


def test_regions_have_the_class_that_they_overlap_most(tmp_path):
    folders.write_voc_regions(tmp_path)
    samples = voc_region_classes(tmp_path, "train")
    assert samples.target.tolist() == [1, 12, 1] * 2  # aeroplane, dog
    assert samples.sources == [0, 0, 0, 1, 1, 1]
    rest, aside = set_aside(samples, 0.5, 0)
    assert {name.split()[0] for name in rest.names} | {"2008_000001", "2008_000002"}
    assert not {n.split()[0] for n in rest.names} & {n.split()[0] for n in aside.names}
    assert resized(samples, [8, 8]).sources == samples.sources


def test_actions_are_of_persons_by_their_number(tmp_path):
    folders.write_voc_actions(tmp_path)
    samples = voc_actions(tmp_path, "trainval", label="jumping")
    assert samples.target.tolist() == [1, 0] * 8
    assert samples.sources == [i for i in range(1, 16, 2) for _ in range(2)]
    whole = read_image(next((tmp_path / "VOCdevkit").rglob("2008_000001.jpg")), grey=False)
    assert torch.equal(samples.inputs[1], whole[:, : 28 + 16, 30 - 1 - 16 :])


@pytest.mark.parametrize("fold", [0, 1, 2])
def test_ibsr_has_11_1_and_6_volumes_in_each_fold(tmp_path, fold):
    folders.write_ibsr(tmp_path)
    parts = {split: ibsr(tmp_path, split, fold=fold) for split in ("train", "val", "test")}
    volumes = {split: {n.split()[0] for n in part.names} for split, part in parts.items()}
    assert [len(volumes[split]) for split in parts] == [11, 1, 6]
    assert len(set.union(*volumes.values())) == 18
    assert volumes["test"] == {f"IBSR_{6 * fold + i:02}" for i in range(1, 7)}
    # of the four slices of a volume two have structures
    assert [len(part) for part in parts.values()] == [22, 4, 24]
    train = parts["train"]
    assert train.inputs[0].shape == (1, 12, 8)
    assert (train.target[0].shape, train.target[0].dtype) == ((12, 8), torch.int64)
    assert train.target[0][2, 2] == IBSR_CLASSES.index("left thalamus")
    assert train.target[0][9, 3] == IBSR_CLASSES.index("right pallidum")
    assert 0 <= train.inputs[0].min() < train.inputs[0].max() <= 1


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "i2", "f4"])
def test_volumes_of_any_byte_order_are_read(tmp_path, order, kind):
    values = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(kind)
    (tmp_path / "v.nii").write_bytes(folders.nifti(values, order))
    assert torch.equal(read_nifti(tmp_path / "v.nii").long(), torch.arange(24).view(2, 3, 4))


def wrong_fold(root):
    folders.write_ibsr(root)
    return ibsr(root, "test", fold=3)


def cut_volume(root):
    folders.write_ibsr(root)
    path = root / "IBSR_01" / "IBSR_01_seg_ana.nii.gz"
    path.write_bytes(path.read_bytes()[:40])
    return ibsr(root, "test")


def wrong_person(root):
    folders.write_voc_actions(root)
    path = root / "VOCdevkit/VOC2012/ImageSets/Action/jumping_trainval.txt"
    path.write_text("2008_000001 3 1\n")
    return voc_actions(root, "trainval", label="jumping")


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
    path = min((root / "stuffthingmaps_trainval2017" / "val2017").glob("*.png"))
    folders.photograph(path, 0)
    return coco_stuff(root, "val").target[0]


def small_mask(root):
    folders.write_coco_stuff(root)
    path = min((root / "stuffthingmaps_trainval2017" / "val2017").glob("*.png"))
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
            wrong_fold,
            r"ibsr has the splits test, val, train of the folds 0 to 2; got test of fold 3",
        ),
        (cut_volume, r"IBSR_01_seg_ana.nii.gz must be a NIfTI-1 volume of numbers"),
        (wrong_person, r"names object 3 of 2008_000001, which has 2. Take both from the same"),
        (
            lambda root: voc_class(root, "val", label="cars"),
            r"`label` must be one of aeroplane, .* tvmonitor; got 'cars'",
        ),
        (
            lambda root: cifar100(root, "val", groups="tens"),
            r"`groups` must be coarse or fives; got 'tens'",
        ),
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
            r"must have one channel of class indices; got an image of mode RGB.",
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
