"""The papers' full settings: every config is one of `evalgrad train`, and takes a step on a tiny
folder in the official layout.
"""

import json
from dataclasses import fields, replace
from pathlib import Path

import layout_folders as folders
import pytest
import torch

from evalgrad_lab import EvaluateOptions, TrainOptions, evaluate, train
from evalgrad_lab.cli import main
from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.batches import Loading, at, loaded
from evalgrad_lab.data.dataset import Examples, Part, Reading
from evalgrad_lab.data.files.read import look_at, read
from evalgrad_lab.data.layouts.image_classes import cifar100
from evalgrad_lab.data.layouts.images import DEVIATION, MEAN, images_in_memory, resized
from evalgrad_lab.data.samplers import drawing, share_positive
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Pace, Phase, Training, fit
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.resnet import DeepLab, resnet18
from evalgrad_lab.models.weights import freeze_batch_norm
from evalgrad_lab.options import read_config
from evalgrad_lab.performance import Performance
from evalgrad_lab.ready import prepare

HOME = Path(__file__).parents[1] / "reproductions" / "configs"
CONFIGS = {path.stem: path for path in sorted(HOME.glob("*.json"))}
LAYOUTS = {
    "cifar100_densenet_smooth_topk": ("cifar100", folders.write_cifar),
    "cityscapes_deeplab_loss_max_pooling": ("cityscapes", folders.write_cityscapes),
    "cityscapes_enet_lovasz": ("cityscapes", folders.write_cityscapes),
    "coco_sky_segnet": ("coco_sky", folders.write_coco_stuff),
    "coco_stuff_deeplab": ("coco_stuff", folders.write_coco_stuff),
    "imagenet_resnet18_smooth_topk": ("imagenet", folders.write_imagenet),
    "voc_deeplab_loss_max_pooling": ("voc", folders.write_voc),
    "voc_deeplab_lovasz": ("voc", folders.write_voc),
    "voc_detection_direct_ap": ("voc_regions", folders.write_voc_regions),
    "voc_detection_logistic": ("voc_regions", folders.write_voc_regions),
    "voc_detection_softmax": ("voc_region_classes", folders.write_voc_regions),
    "voc_actions_direct_ap": ("voc_actions", folders.write_voc_actions),
    "voc_class_deeplab_lovasz": ("voc_class", folders.write_voc),
    "ibsr_brain_net_lovasz": ("ibsr", folders.write_ibsr),
}
# what a test can afford; the large networks differ only in the number of blocks
SMALL = {
    "deeplab": {"blocks": (1, 1, 1, 1)},
    "densenet": {"depth": 7, "growth": 4},
    "segnet": {"widths": [4, 8]},
    "alexnet": {"hidden": 8},
    "brain_net": {"width": 2},
}
# where the tiny folders differ from the real ones
CHANGES = {
    "imagenet_resnet18_smooth_topk": {
        # of three classes there is no top 5
        "metric": "top1",
        "loss_options": {"k": 2, "temperature": 0.1},
        "data_options": {"resize": 40, "held_out": 1, "validation": "held_out", "test": "val"},
    },
    "voc_detection_softmax": {"sampler": "uniform"},  # every region shows something
    "voc_class_deeplab_lovasz": {
        "data_options": {"label": "person", "train": "trainaug", "validation": None, "test": "val"}
    },
}


def options_of(name, root, **changes):
    layout, write = LAYOUTS[name]
    write(root / "data")
    given = read_config(CONFIGS[name], {one.name for one in fields(TrainOptions)})
    where = {"data": Path(f"{layout}:{root / 'data'}"), "out": root / "out", "accelerator": "cpu"}
    return TrainOptions(**(given | where | changes))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_takes_a_step(name, tmp_path):
    torch.set_num_threads(1)
    options = options_of(name, tmp_path, iterations=1, batch_size=2, accumulate=1, limit=6)
    options = replace(options, validation=0.4, **CHANGES.get(name, {}))
    if isinstance(options.data_options.get("resize"), list):
        options = replace(options, data_options={**options.data_options, "resize": [40, 48]})
    small = {**(options.model_options or {}), **SMALL.get(options.model, {})}
    result = train(replace(options, model_options=small, crop=options.crop and 32))
    assert result.steps == 1
    assert 0 <= result.validation <= 1
    assert 0 <= result.test <= 1  # of a part that chose nothing
    parts = json.loads((tmp_path / "out" / "parts.json").read_text())
    names = [{name for name, _ in parts[part]} for part in ("train", "validation", "test")]
    assert all(names)
    assert not names[0] & names[1]
    assert not names[2] & (names[0] | names[1])
    assert (tmp_path / "out" / "best.safetensors").exists()
    if options.task == "classification":
        crops = 32 if options.model == "resnet18" else None
        asked = EvaluateOptions(run=tmp_path / "out", metric="top1", crops=crops, device="cpu")
        found = evaluate(asked)
        assert (found.part, found.examples) == ("test", len(names[2]))


def test_the_command_line_comes_before_the_config(tmp_path, capsys):
    folders.write_cityscapes(tmp_path)
    arguments = [
        *("train", "--config", str(CONFIGS["cityscapes_enet_lovasz"])),
        *("--data", f"cityscapes:{tmp_path}", "--out", str(tmp_path / "out")),
        *("--iterations", "1", "--batch-size", "2", "--limit", "2"),
        *("--data-options", '{"resize": [32, 64]}', "--accelerator", "cpu"),
    ]
    assert main(arguments) == 0
    assert "lovasz_softmax for miou: validation" in " ".join(capsys.readouterr().out.split())
    description = json.loads((tmp_path / "out" / "model.json").read_text())
    assert description["classes"][0] == "road"
    assert description["mean"] == MEAN
    evaluated = ["evaluate", str(tmp_path / "out"), "--data", f"cityscapes:{tmp_path}"]
    assert main(evaluated) == 0


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


def test_nesterov_reaches_the_optimiser():
    pace = Pace(0.1, optimiser="sgd", momentum=0.9, nesterov=True)
    (group,) = Training(
        torch.nn.Linear(1, 1), [Phase(lambda output, batch: output.sum(), 1)], pace
    ).optimiser.param_groups
    assert (group["nesterov"], group["momentum"]) == (True, 0.9)


def test_the_head_has_a_rate_of_its_own_and_its_biases_no_decay():
    pace = Pace(0.1, 0.01, optimiser="sgd", momentum=0.9, head_rate=10)
    network = DeepLab(3, blocks=(1, 1, 1, 1))
    training = Training(network, [Phase(lambda output, batch: output.sum(), 4)], pace)
    groups = training.optimiser.param_groups
    heads = list(network.heads.parameters())
    assert [(g["lr"], g["weight_decay"]) for g in groups] == [(0.1, 0.01), (1.0, 0.01), (2.0, 0)]
    assert {id(p) for g in groups[1:] for p in g["params"]} == {id(p) for p in heads}
    assert sum(len(g["params"]) for g in groups) == len(list(network.parameters()))
    training.optimiser.step()
    training.schedule.step()
    assert [g["lr"] / first for g, first in zip(groups, (0.1, 1, 2), strict=True)] == pytest.approx(
        [groups[0]["lr"] / 0.1] * 3
    )


def test_frozen_batch_norm_stays_as_it_was_loaded():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    freeze_batch_norm(network)
    network.train()
    assert not network[1].training
    pace = Pace(0.1, 0.1, optimiser="sgd")
    training = Training(network, [Phase(lambda output, batch: output.sum(), 1)], pace)
    fit(
        training, lambda epoch: [at(Part(torch.randn(4, 1, 3, 3), torch.zeros(4)), torch.arange(4))]
    )
    state = network.state_dict()
    assert list(state) == list(before)
    assert not torch.equal(state["0.weight"], before["0.weight"])
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(state[f"1.{name}"], before[f"1.{name}"])


def test_caffe_takes_blue_first_without_a_deviation(tmp_path):
    options = options_of("voc_deeplab_lovasz", tmp_path, normalise="caffe")
    normalise = prepare(options).network()[0]
    image = torch.tensor([122.675, 116.669, 104.008 + 7])[None, :, None, None] / 255
    torch.testing.assert_close(
        normalise(image).flatten(), torch.tensor([7.0, 0, 0]), atol=1e-4, rtol=0
    )
    grey = {"task": "ranking", "metric": "ap", "data": tmp_path / "t.csv", "normalise": "caffe"}
    (tmp_path / "t.csv").write_text("x,target\n" + "1,0\n2,1\n" * 10)
    with pytest.raises(UserError, match="--normalise caffe is for images of three channels; got"):
        prepare(TrainOptions(**grey, out=tmp_path / "x"))


def drawn(examples, sampler, epochs, **loading):
    batches = loaded(examples, Loading(1, 0, sampler=sampler, **loading))
    return [int(batch.index) for epoch in range(epochs) for batch in batches(epoch)]


def test_equibatch_visits_every_class_that_is_there():
    target = torch.zeros(8, 2, 2, dtype=torch.int64)
    target[0, 0, 0], target[1] = 3, 255
    part = Part(torch.zeros(8, 1, 2, 2), target)
    order = drawn(part, "equibatch", 4)
    assert order.count(0) >= len(order) / 2  # the only image of class 3 has half of the turns
    assert 1 not in order  # it has no class
    assert drawn(part, "equibatch", 4) == order
    assert order[8:16] != order[:8]


def rare_scenes():
    """12 images 64x64: one pixel or a corner of each of the classes 1 to 4 in three of them."""
    target = torch.zeros(12, 64, 64, dtype=torch.int64)
    for i in range(12):
        side = (1, 3, 6)[i % 3]
        target[i, -side:, 7 * i % 50 :][:, :side] = 1 + i // 3
    return Part(torch.rand(12, 3, 64, 64), target)


@pytest.mark.parametrize("sampler", ["equibatch", "performance"])
@pytest.mark.parametrize("mode", ["none", "full"])
def test_the_class_that_is_due_is_in_every_crop(sampler, mode):
    part = rare_scenes()
    draw = drawing(sampler, part, 0, 255)
    loading = Loading(1, 0, sampler=sampler, augment=mode, crop=32)
    batches, missing, with_class, changed = loaded(part, loading), 0, 0, {}
    for epoch in range(10):
        visits = draw(epoch, torch.Generator())
        for visit, batch in zip(visits, batches(epoch), strict=True):
            assert batch.index.tolist() == [visit.place]
            if visit.due is not None:
                with_class += 1
                missing += not (batch.target == visit.due).any()
            changed.setdefault((epoch, visit), []).append(batch.inputs)
    assert (missing, with_class > 40) == (0, True)
    # drawn twice in an epoch, an image is cropped in two ways
    again = [crops for crops in changed.values() if len(crops) > 1]
    assert again
    assert any(not torch.equal(crops[0], crops[1]) for crops in again)


def test_crops_without_a_class_that_is_due_are_anywhere():
    target = torch.arange(36).view(6, 6)
    corners = {
        int(augment(torch.zeros(1, 6, 6), target, seeded(s), "none", 3, 255)[1][0, 0])
        for s in range(200)
    }
    assert corners == {6 * y + x for y in range(4) for x in range(4)}
    around = [
        augment(torch.zeros(1, 6, 6), target, seeded(s), "none", 3, 255, 7) for s in range(99)
    ]
    assert {int(crop[1][0, 0]) for crop in around} == {0, 1, 6, 7}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_the_sampler_follows_the_iou_of_the_training(tmp_path):
    """A network that says 0 everywhere: class 0 does well, so that the others are drawn for."""
    part = rare_scenes()
    draw = drawing("performance", part, 0, 255)
    hook = Performance(draw, lambda output, dims: output.argmax(1), 5, 255)
    training = Training(torch.nn.Linear(1, 1), [Phase(lambda output, batch: 0, 1)], Pace(0.1))
    for i in range(12):
        training.batch = at(part, torch.tensor([i]))
        training.output = torch.nn.functional.one_hot(torch.zeros(1, 64, 64).long(), 5)
        training.output = training.output.movedim(-1, 1).float()
        hook.after_step(training)
    hook.after_epoch(training)
    background = (part.target == 0).double().mean().item()
    assert hook.state_dict()["iou"] == pytest.approx([background, 0, 0, 0, 0])
    assert not hook.counts.any()
    draws = [visit.due for epoch in range(40) for visit in draw(epoch, torch.Generator())]
    assert draws.count(0) < 5 < min(draws.count(c) for c in (1, 2, 3, 4))
    other = Performance(drawing("performance", part, 0, 255), hook.labels, 5, 255)
    other.load_state_dict(hook.state_dict())
    assert other.state_dict() == hook.state_dict()


def test_a_quarter_of_the_drawn_items_are_positive():
    target = torch.tensor([0, 1, 0, 0, 0, 1, 0])
    chances = share_positive(target == 1, 0.25, "quarter_positive")
    assert chances.sum().item() == pytest.approx(1)
    assert chances[target == 1].tolist() == pytest.approx([0.125, 0.125])
    assert len(set(chances[target == 0].tolist())) == 1
    rare = Part(torch.zeros(400, 1), (torch.arange(400) < 4).long() * 3)  # or classes, 0 the rest
    share = sum(i < 4 for i in drawn(rare, "quarter_positive", 5)) / 2000
    assert share == pytest.approx(0.25, abs=0.05)


def test_label_maps_are_resized_without_new_labels():
    target = [torch.tensor([[0, 7], [255, 7]])]
    column = type(images_in_memory(torch.zeros(1, 3, 2, 2), torch.zeros(1), "train").inputs)
    examples = resized(Examples(column([torch.rand(3, 2, 2)]), column(target)), [4, 6])
    assert examples.inputs[0].shape == (3, 4, 6)
    assert examples.target[0].shape == (4, 6)
    assert examples.target[0].unique().tolist() == [0, 7, 255]
    assert examples.known.same_size
    wide = resized(Examples(column([torch.rand(3, 10, 20)]), torch.tensor([1])), 5)
    assert wide.inputs[0].shape == (3, 5, 10)
    assert not wide.known.same_size
    assert wide.target.tolist() == [1]


def test_large_data_sets_are_not_read_to_be_normalised(tmp_path):
    folders.write_cityscapes(tmp_path)
    found = read(Path(f"cityscapes:{tmp_path}"), Reading("segmentation"))
    for image in (tmp_path / "leftImg8bit").rglob("*.png"):
        image.write_bytes(b"")  # whoever reads it is told
    assert look_at(tmp_path, found.train) == (MEAN, DEVIATION, False)
    assert not look_at(tmp_path, found.validation, 3).alike
    assert look_at(tmp_path, found.train.take([0])).mean == MEAN


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


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "cityscapes_enet_lovasz",
            {"task": "classification", "metric": "top1", "loss": "cross_entropy"},
            r"--data cityscapes:... is for --task segmentation; got classification.",
        ),
        (
            "cityscapes_enet_lovasz",
            {"data_options": {"train": None}},
            r"--data-options: `train` must be the name of a split; got none.",
        ),
        (
            "cityscapes_enet_lovasz",
            {"data_options": {"depth": 3}},
            r"--data-options: cityscapes does not take \{'depth': 3\}",
        ),
        (
            "cityscapes_enet_lovasz",
            {"sampler": "quarter_positive"},
            r"--sampler quarter_positive is for a ranking or classification. Drop it.",
        ),
        (
            "voc_detection_direct_ap",
            {"sampler": "performance"},
            r"--sampler performance is for segmentation. Drop it.",
        ),
        (
            "voc_detection_direct_ap",
            {"sampler": "equibatch"},
            r"--sampler equibatch is for segmentation. Drop it.",
        ),
    ],
)
def test_messages(tmp_path, name, changes, message):
    with pytest.raises(UserError, match=message):
        train(options_of(name, tmp_path, iterations=1, batch_size=2, **changes))


def test_one_sided_items_and_options_of_other_data_are_told(tmp_path):
    with pytest.raises(UserError, match="needs training items of both kinds; got 0 of 5 pos"):
        share_positive(torch.zeros(5), 0.25, "quarter_positive")
    with pytest.raises(UserError, match=r"--data-options are for layouts, --data NAME:FOLDER"):
        read(tmp_path, Reading("segmentation", data_options={"noise": 0.1}))


def test_lists_of_numbers_in_a_config_are_those_of_the_command_line():
    asked = {"task": "segmentation", "metric": "miou", "data": Path("d"), "out": Path("o")}
    options = TrainOptions(**asked, scales=[1, 0.5])
    assert options.scales == (1, 0.5)
    assert "1,0.5" in options.arguments()
    assert TrainOptions.of(json.loads(json.dumps(options.plain()))) == options
    with pytest.raises(UserError, match=r"--scales must be numbers such as 1,0\.5; got"):
        TrainOptions(**asked, scales=["1"])


def test_numbers_of_the_configs_are_the_papers():
    lovasz, detection, enet = (
        json.loads(CONFIGS[name].read_text())
        for name in ("voc_deeplab_lovasz", "voc_detection_direct_ap", "cityscapes_enet_lovasz")
    )
    assert (lovasz["learning_rate"], lovasz["momentum"], lovasz["weight_decay"]) == (
        2.5e-4,
        0.9,
        5e-4,
    )
    assert enet["data_options"]["resize"] == [512, 1024]
    assert (detection["learning_rate"], detection["weight_decay"]) == (0.1, 1e-7)
    assert (detection["batch_size"], detection["loss_options"]["epsilon"]) == (512, 0.1)
