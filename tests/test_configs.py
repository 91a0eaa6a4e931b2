"""The papers' full settings: every config is read, built and takes one step on a tiny folder in the
official layout.
"""

import json

import layout_folders as folders
import numpy as np
import pytest
import torch

from evalgrad_lab.data.layouts.cifar import cifar100
from evalgrad_lab.errors import UserError
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.resnet import DeepLab, resnet18
from reproductions import configs, full_setting
from reproductions.__main__ import main
from reproductions.full_setting.data import (
    Prepared,
    central,
    loader,
    prepared,
    quarter_positive,
    resized,
)
from reproductions.full_setting.module import FullSetting, schedule_of

WRITERS = {
    "cityscapes": folders.write_cityscapes,
    "voc": folders.write_voc,
    "voc_regions": folders.write_voc_regions,
    "coco_stuff": folders.write_coco_stuff,
    "coco_sky": folders.write_coco_stuff,
    "cifar100": folders.write_cifar,
    "imagenet": folders.write_imagenet,
}


def smaller(config):
    """The config with a network that a test can afford; the large ones differ only in the number of
    blocks.
    """
    small = {
        "deeplab": {"blocks": (1, 1, 1, 1)},
        "densenet": {"depth": 7, "growth": 4},
        "segnet": {"widths": [4, 8]},
    }
    small["alexnet"] = {"hidden": 8}
    config.model.update(small.get(config.model["name"], {}))
    return config


@pytest.mark.parametrize("name", configs.names())
def test_every_config_takes_a_step(name, tmp_path):
    torch.set_num_threads(1)
    config = smaller(configs.read(name))
    WRITERS[config.data["layout"]](tmp_path)
    said = full_setting.dry_run(config, tmp_path)
    assert said.startswith(f"{config.title}: ")
    assert "one step done: loss" in said
    assert "nan" not in said.partition(config.notes)[0]
    assert said.endswith(config.notes)


def test_the_command_tries_a_config(tmp_path, capsys):
    folders.write_cityscapes(tmp_path)
    arguments = [
        "--config",
        "cityscapes_enet_lovasz",
        "--data",
        str(tmp_path),
        "--dry-run",
    ]
    assert main(arguments) == 0
    assert "0.4 million parameters, one step done" in " ".join(capsys.readouterr().out.split())


def test_networks_have_the_published_number_of_parameters():
    small, large = (
        sum(p.numel() for p in model.parameters()) for model in (resnet18(1000), DeepLab(21))
    )
    assert small == 11_689_512
    assert sum(p.numel() for p in alexnet(1000).parameters()) == 60_965_224
    # ResNet-101 without its classifier
    assert large == pytest.approx(42.5e6 + 4 * (2048 * 9 + 1) * 21, rel=1e-3)


def test_deeplab_keeps_an_eighth_of_the_size_and_returns_to_the_image():
    model = DeepLab(5, blocks=(1, 1, 1, 1)).eval()
    images = torch.zeros(1, 3, 65, 81)
    assert model.trunk(images).shape[-2:] == (9, 11)
    assert model(images).shape == (1, 5, 65, 81)


def test_schedules_by_the_part_that_is_over():
    drops = schedule_of({"name": "drops", "at": [0.5, 0.75]})
    assert [drops(part) for part in (0.0, 0.49, 0.5, 0.75)] == pytest.approx([1, 1, 0.1, 0.01])
    assert schedule_of({"name": "poly"})(0.5) == pytest.approx(0.5**0.9)


def test_learning_rate_follows_the_schedule(tmp_path):
    config = configs.read("cityscapes_enet_lovasz")
    made = FullSetting(config, steps=10).configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    for _ in range(5):
        optimiser.step()
        schedule.step()
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.00025 * 0.5**0.9)


def test_equibatch_visits_every_class_that_is_there(tmp_path):
    folders.write_voc(tmp_path)
    config = configs.read("voc_deeplab_lovasz")
    samples = prepared(config, tmp_path, "train", dry=True)
    order = list(loader(config, samples, "train", 1, 0).sampler)
    assert {index // 2 for index in order} == {0, 1}  # VOC's images have class 15, SBD's class 20


def test_a_quarter_of_the_drawn_regions_are_positive():
    target = torch.tensor([0, 1, 0, 0, 0, 1, 0])
    chances = quarter_positive(target)
    assert chances.sum().item() == pytest.approx(1)
    assert chances[target == 1].tolist() == pytest.approx([0.125, 0.125])
    assert len(set(chances[target == 0].tolist())) == 1


def test_validation_by_ap_ranks_all_batches_together():
    config = smaller(configs.read("voc_detection_direct_ap"))
    module = FullSetting(config, steps=1)
    module.network, logged = torch.nn.Flatten(0), {}
    module.log = lambda name, value, **_: logged.update({name: value.item()})
    module.all_gather = lambda tensor: tensor
    module.validation_step((torch.tensor([3.0, 1.0]), torch.tensor([1, 0])), 0)
    module.validation_step((torch.tensor([4.0, 2.0]), torch.tensor([0, 1])), 1)
    module.on_validation_epoch_end()
    # positives at the places 2 and 3 of four
    assert logged["metric"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert module.kept == []


def test_label_maps_are_resized_without_new_labels():
    target = torch.tensor([[0, 7], [255, 7]])
    image, small = resized(torch.rand(3, 2, 2), target, [4, 6])
    assert image.shape == (3, 4, 6)
    assert small.unique().tolist() == [0, 7, 255]
    assert resized(torch.rand(3, 10, 20), torch.tensor(1), 5)[0].shape == (3, 5, 10)


def test_the_centre_is_cut_out_for_validation():
    image = torch.arange(6 * 8.0).view(1, 6, 8)
    assert torch.equal(central(image, 4), image[:, 1:5, 2:6])
    assert central(image, None) is image


def test_prepared_images_are_normalised():
    image = torch.stack([torch.full((8, 8), value) for value in (0.485, 0.456, 0.406)])
    values, target = Prepared([(image, torch.tensor(3))], None, "none", None)[0]
    torch.testing.assert_close(values, torch.zeros(3, 8, 8))
    assert target.item() == 3


def test_cifar_noise_stays_in_the_coarse_class_and_repeats(tmp_path):
    folders.write_cifar(tmp_path)
    clean, noisy, again = (cifar100(tmp_path, "val", noise=p).target for p in (0.0, 0.5, 0.5))
    assert torch.equal(noisy, again)
    assert torch.equal(clean // 5, noisy // 5)  # the folder's coarse classes are fives of fine ones
    changed = (clean != noisy).double().mean().item()
    assert changed == pytest.approx(0.5 * 4 / 5, abs=0.05)
    assert torch.equal(
        cifar100(tmp_path, "test", noise=1.0).target, cifar100(tmp_path, "test").target
    )


def test_training_ends_with_checkpoints_and_starts_from_weights(tmp_path):
    folders.write_imagenet(tmp_path / "data")
    config = configs.read("imagenet_resnet18_smooth_topk")
    config.data.update(resize=32, crop=32)
    config.training.update(epochs=1, batch=2)
    config.model.update(outputs=10)
    weights = tmp_path / "weights.pt"
    torch.save(resnet18(10).state_dict(), weights)
    metric = full_setting.train(
        config, tmp_path / "data", tmp_path / "out", weights=weights, workers=0
    )
    assert 0 <= metric <= 1
    assert {path.name for path in (tmp_path / "out").glob("*.ckpt")} == {"best.ckpt", "last.ckpt"}


def changed(tmp_path, **parts):
    content = json.loads((configs.HOME / "cityscapes_enet_lovasz.json").read_text()) | parts
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    folders.write_cityscapes(tmp_path)
    return full_setting.dry_run(configs.read(str(path)), tmp_path)


def not_json(tmp_path):
    (tmp_path / "own.json").write_text("{")
    return configs.read(str(tmp_path / "own.json"))


def wrong_sampler(tmp_path):
    config = configs.read("cityscapes_enet_lovasz")
    config.data["sampler"] = "quarter_positive"
    folders.write_cityscapes(tmp_path)
    return full_setting.dry_run(config, tmp_path)


def bad_weights(tmp_path):
    folders.write_cityscapes(tmp_path)
    (tmp_path / "w.pt").write_bytes(b"nothing")
    return full_setting.dry_run(
        configs.read("cityscapes_enet_lovasz"), tmp_path, weights=tmp_path / "w.pt"
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            lambda path: configs.read("nothing"),
            r"--config: nothing is neither a file nor one of cifar100_densenet_smooth_topk, ",
        ),
        (not_json, r"own.json is not JSON: .*Repair the file."),
        (
            lambda path: changed(path, extra=1),
            r"own.json must have the keys data, loss, .*; got .*'extra'",
        ),
        (
            lambda path: changed(path, model={"name": "vgg"}),
            r"config: the model must be one of .*enet, .*; got vgg.",
        ),
        (
            lambda path: changed(path, model={"name": "enet", "depth": 3}),
            r"config: the model enet does not take \{'depth': 3\}",
        ),
        (
            lambda path: changed(path, data={"layout": "kitti"}),
            r"config: the layout must be one of cityscapes, .*; got kitti.",
        ),
        (
            lambda path: schedule_of({"name": "zigzag"}),
            r"config: the schedule must be drops or one of .*; got zigzag.",
        ),
        (
            lambda path: quarter_positive(torch.zeros(5)),
            r"config: the training regions must be of both kinds; got 0 of 5 with",
        ),
        (
            wrong_sampler,
            r"config: the sampler quarter_positive needs the layout voc_regions; got cityscapes.",
        ),
        (bad_weights, r"--weights: .*w.pt cannot be read as weights. Save them as torch.save"),
    ],
)
def test_messages(tmp_path, broken, message):
    with pytest.raises(UserError, match=message):
        broken(tmp_path)


def test_a_config_needs_data(capsys):
    assert main(["--config", "voc_deeplab_lovasz"]) == 2
    assert (
        "--config voc_deeplab_lovasz needs --data, the folder of voc in its official layout."
        in capsys.readouterr().err
    )


def test_numbers_of_the_configs_are_the_papers():
    assert configs.read("voc_deeplab_lovasz").training["optimiser"] == {
        "name": "sgd",
        "lr": 2.5e-4,
        "momentum": 0.9,
        "weight_decay": 5e-4,
    }
    assert np.prod(configs.read("cityscapes_enet_lovasz").data["resize"]) == 512 * 1024
    detection = configs.read("voc_detection_direct_ap")
    assert detection.training["optimiser"] == {"name": "sgd", "lr": 0.1, "weight_decay": 1e-7}
    assert (detection.training["batch"], detection.loss["epsilon"]) == (512, 0.1)
