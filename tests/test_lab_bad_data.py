"""What the user can repair: one sentence that names the file and the repair, exit code 2, and
nothing written.
"""

import json
import re
import shutil
from dataclasses import fields

import numpy as np
import pytest
import torch
from PIL import Image
from training_data import table, write_colours, write_segmentation, write_table

from evalgrad_lab.cli import main
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.files.read import read_inputs
from evalgrad_lab.errors import UserError
from evalgrad_lab.store import sealed


def told(capsys, tmp_path, *arguments):
    """The sentence that the command ends in, after checking that it left nothing behind."""
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    assert sorted(tmp_path.rglob("*")) == before
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"evalgrad {arguments[0]}: ")
    assert captured.err.count("\n") == 1
    return captured.err


def train(capsys, tmp_path, data, *more, task="segmentation", metric="miou"):
    options = [
        "--task",
        task,
        "--metric",
        metric,
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--accelerator",
        "cpu",
        "--epochs",
        1,
    ]
    return told(capsys, tmp_path, "train", *options, *more)


@pytest.fixture
def folder(tmp_path):
    return write_segmentation(tmp_path / "data", count=4)


def test_a_mask_without_an_image(capsys, tmp_path, folder):
    (folder / "images" / "02.png").unlink()
    message = train(capsys, tmp_path, folder)
    assert (
        f"{folder}/masks/02.png has no image. Add {folder}/images/02.png or remove the mask."
        in message
    )


def test_an_image_without_a_mask(capsys, tmp_path, folder):
    (folder / "masks" / "02.png").unlink()
    assert f"{folder}/images/02.png has no mask. Add {folder}/masks/02.png" in train(
        capsys, tmp_path, folder
    )


@pytest.mark.parametrize("part", ["images", "masks"])
@pytest.mark.parametrize("damage", ["text", "cut"])
def test_an_unreadable_file(capsys, tmp_path, folder, part, damage):
    file = folder / part / "01.png"
    file.write_bytes(b"no image" if damage == "text" else file.read_bytes()[:60])
    message = train(capsys, tmp_path, folder)
    assert f"{file} cannot be read as an image" in message
    assert "Replace or remove it." in message


def test_a_label_above_num_classes(capsys, tmp_path, folder):
    message = train(capsys, tmp_path, folder, "--num-classes", 2)
    assert (
        f"{folder}/masks/00.png: the labels must be in [0, 2) or 255 (ignored); got 2. Increase"
        " --num-classes" in message
    )


def test_masks_of_0_and_255(capsys, tmp_path, folder):
    for mask in (folder / "masks").iterdir():
        Image.fromarray(np.where(np.array(Image.open(mask)) > 0, 255, 0).astype(np.uint8)).save(
            mask
        )
    assert (
        "the masks contain no label except 0 and 255, which is ignored. Save class indices, 1 for"
        " the foreground of a binary task, not 255." in train(capsys, tmp_path, folder)
    )


def test_a_colour_mask(capsys, tmp_path, folder):
    Image.open(folder / "masks" / "00.png").convert("RGB").save(folder / "masks" / "00.png")
    assert "masks/00.png must have one channel of class indices" in train(capsys, tmp_path, folder)


def test_a_mask_of_another_size(capsys, tmp_path, folder):
    Image.new("L", (5, 7)).save(folder / "masks" / "03.png")
    assert (
        "masks/03.png is (5, 7) pixels but its image is (16, 16). Give both the same size."
        in train(capsys, tmp_path, folder)
    )


@pytest.mark.parametrize("part", ["images", "masks"])
def test_an_empty_folder(capsys, tmp_path, folder, part):
    for file in (folder / part).iterdir():
        file.unlink()
    assert f"{folder}/{part} contains no images. Put images in it" in train(
        capsys, tmp_path, folder
    )


def test_a_missing_folder(capsys, tmp_path):
    assert "--data must be a folder or .npz for segmentation, and exist; got" in train(
        capsys, tmp_path, tmp_path / "nothing"
    )
    (tmp_path / "empty").mkdir()
    assert "empty/images is missing or not a folder" in train(capsys, tmp_path, tmp_path / "empty")


def test_classes_that_do_not_fit(capsys, tmp_path):
    data = write_colours(tmp_path / "data" / "train")
    options = {"task": "classification", "metric": "accuracy"}
    shutil.copytree(data / "red", tmp_path / "data" / "val" / "pink")
    assert "val/pink is a class that is missing from the training data." in train(
        capsys, tmp_path, tmp_path / "data", **options
    )
    shutil.rmtree(data / "red")
    shutil.rmtree(data / "blue")
    assert "must hold one folder of images per class, at least two; got ['green']" in train(
        capsys, tmp_path, tmp_path / "data", **options
    )
    write_colours(tmp_path / "three")
    message = train(capsys, tmp_path, tmp_path / "three", task="classification", metric="top3")
    assert "--metric top3 needs more than 3 classes; the data have 3." in message


def test_a_table_without_the_target_column(capsys, tmp_path):
    data = write_table(tmp_path / "data.csv", target_name="label")
    message = train(capsys, tmp_path, data, task="ranking", metric="ap")
    assert (
        f"{data} has no column 'target'; it has a, b, c, label, query. Name the right one with"
        " --target." in message
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows below its header"),
        ("a,target\n1,0\n2\n", "line 3 has 1 fields, but the header has 2"),
        ("a,target\n1,0\nx,1\n", "line 3: the column a must hold numbers; got 'x'. Fill in"),
        ("a,target\n1,0\nnan,1\n", "line 3: all numbers must be finite"),
        ("a,target\n1,0\n2,7\n", "line 3: target must be 0 or 1; got '7'"),
        ("a,target\n1,0\n2,0\n3,0\n", "must have items with target 0 and with target 1"),
        ("a,target\n1,0\n", "has one example; at least two are needed"),
    ],
)
def test_a_broken_table(capsys, tmp_path, text, message):
    (tmp_path / "data.csv").write_text(text)
    assert message in train(capsys, tmp_path, tmp_path / "data.csv", task="ranking", metric="ap")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": np.zeros((4, 2))}, "has no array 'target'; got ['inputs']"),
        (
            {"inputs": np.zeros((4, 2)), "target": np.zeros(3, int)},
            "target must have the shape (4,) for ranking; got (3,)",
        ),
        (
            {"inputs": np.zeros((4, 2)), "target": np.zeros(4)},
            "target must hold integers; got float64",
        ),
        ({"inputs": np.full((4, 2), np.nan), "target": np.zeros(4, int)}, "only finite numbers"),
        (
            {"inputs": np.zeros((4, 2)), "target": np.array([0, 1, 2, 0])},
            "example 2: the target must be 0 or 1; got 2",
        ),
        (
            {"inputs": np.zeros((4, 2)), "target": np.arange(4) % 2, "group": np.zeros(3)},
            "group must have the shape (4,)",
        ),
        (
            {"inputs": np.array([{}] * 4), "target": np.zeros(4, int)},
            "cannot be read as an .npz file of plain arrays",
        ),
    ],
)
def test_a_broken_npz(capsys, tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    assert message in train(capsys, tmp_path, tmp_path / "data.npz", task="ranking", metric="ap")


BITS = np.arange(4) % 2


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.array(["a"] * 4), "inputs must hold integers or floats; got <U1. Convert them"),
        (np.zeros((4, 2), complex), "inputs must hold integers or floats; got complex128."),
        (np.zeros((4, 2), "M8[s]"), "inputs must hold integers or floats; got datetime64[s]."),
        (np.zeros(4, [("a", "f4")]), "inputs must hold integers or floats; got [('a', '<f4')]."),
        (np.float64(3), "or (N, H, W, channels), or rows (N, columns); got the shape ()."),
        (np.zeros(4), "or rows (N, columns); got the shape (4,)."),
        (np.zeros((4, 2, 2, 2, 2)), "or rows (N, columns); got the shape (4, 2, 2, 2, 2)."),
        (np.full((4, 2), 1e300), "only finite numbers"),
        (np.zeros((0, 2)), "at least one example"),
        (np.zeros((4, 0)), "at least one example"),
        (
            np.zeros((4, 3, 16, 16)),
            "inputs must be images (N, H, W, channels), with the channels last; got the shape"
            " (4, 3, 16, 16). Save inputs.transpose(0, 2, 3, 1).",
        ),
        (np.zeros((4, 1, 9, 16), np.uint8), "with the channels last; got the shape (4, 1, 9, 16)"),
    ],
)
def test_inputs_that_are_none(capsys, tmp_path, inputs, message):
    np.savez(tmp_path / "data.npz", inputs=inputs, target=BITS)
    assert message in train(capsys, tmp_path, tmp_path / "data.npz", task="ranking", metric="ap")


def test_images_that_are_too_small(capsys, tmp_path):
    np.savez(tmp_path / "data.npz", inputs=np.zeros((40, 3, 9)), target=np.arange(40) % 2)
    message = train(capsys, tmp_path, tmp_path / "data.npz", task="ranking", metric="ap")
    assert "images must have at least 4 x 4 pixels for the default network" in message
    assert "got (3, 9). Enlarge them, or pass a --model." in message


@pytest.mark.parametrize(
    ("inputs", "target", "message"),
    [
        (
            np.zeros((4, 3)),
            BITS,
            "inputs must be images, (N, H, W) or (N, H, W, channels) for segmentation; got the"
            " shape (4, 3).",
        ),
        (np.zeros((4, 3)), np.zeros((4, 3), int), "for segmentation; got the shape (4, 3)."),
        (np.zeros((4, 8, 8)), BITS, "target must have the shape (4, 8, 8) for segmentation"),
        (
            np.zeros((4, 2, 8, 8)),  # any number of channels: the masks say where they are
            np.zeros((4, 8, 8), int),
            "with the channels last; got the shape (4, 2, 8, 8). Save inputs.transpose",
        ),
    ],
)
def test_arrays_that_are_no_segmentation(capsys, tmp_path, inputs, target, message):
    np.savez(tmp_path / "data.npz", inputs=inputs, target=target)
    assert message in train(capsys, tmp_path, tmp_path / "data.npz")


def test_names_of_classes_that_are_no_list(capsys, tmp_path):
    arrays = {"inputs": np.zeros((4, 2)), "target": BITS, "classes": "ab"}
    np.savez(tmp_path / "data.npz", **arrays)
    message = train(capsys, tmp_path, tmp_path / "data.npz", task="ranking", metric="ap")
    assert "classes must be a list of names; got the shape ()." in message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--loss", "lovas"],
            "the loss must be one that `evalgrad losses` lists; got 'lovas'. Did you mean",
        ),
        (
            ["--loss", "smooth_topk"],
            "--loss smooth_topk is for classification, and --task is segmentation.",
        ),
        (
            ["--loss", "lovasz_hinge"],
            "--loss lovasz_hinge is for two classes; the data have 3. Use lovasz_softmax.",
        ),
        (["--loss-options", '{"bins": -1}'], "lovasz_softmax does not take the options"),
        (
            ["--loss", "cross_entropy", "--mix", "then:0.5"],
            "--loss is cross_entropy itself. Drop --mix.",
        ),
        (
            ["--model", "no_such_module:Net"],
            "config.json; 'no_such_module:Net' cannot be imported",
        ),
        (["--model", "torch:zeros"], "torch:zeros must take (inputs, outputs=...)"),
        (["--augment", "full"], "--augment full scales them. Pass --crop SIZE"),
        (
            ["--strategy", "telepathy"],
            "Lightning cannot train with {'accelerator': 'cpu', 'devices': 1",
        ),
        (["--validation", "1"], "--validation must be at least 0.001 and below 1; got 1.0."),
        (["--validation", "0.6", "--test", "0.4"], "leave nothing to train on. Make them smaller"),
        (["--batch-size", "0"], "--batch-size must be at least 1; got 0."),
        (["--schedule", "zigzag"], "--schedule must be cosine, poly, constant, exponential"),
        (["--resume", "no.ckpt"], "no.ckpt cannot be read as a checkpoint"),
    ],
)
def test_options_that_do_not_fit(capsys, tmp_path, folder, more, message):
    assert message in train(capsys, tmp_path, folder, *more)


def test_a_metric_of_another_task_and_one_that_is_none(capsys, tmp_path, folder):
    message = train(capsys, tmp_path, folder, metric="ap")
    assert (
        "--metric ap is a metric of ranking and multilabel, and --task is segmentation. Change one"
        " of them." in message
    )
    assert "--metric must be one of miou, image-miou" in train(
        capsys, tmp_path, folder, metric="recall@precision=2"
    )
    assert "--metric image-iou is for two classes" in train(
        capsys, tmp_path, folder, "--loss", "cross_entropy", metric="image-iou"
    )
    assert "--augment and --crop are for images" in train(
        capsys,
        tmp_path,
        write_table(tmp_path / "t.csv"),
        "--crop",
        4,
        "--group",
        "query",
        task="ranking",
        metric="ap",
    )


def test_a_solver_with_steps_of_its_own(capsys, tmp_path):
    data, more = (
        write_table(tmp_path / "t.csv"),
        [
            "--group",
            "query",
            "--loss-options",
            '{"solver": "lagrangian"}',
        ],
    )
    message = train(capsys, tmp_path, data, *more, task="ranking", metric="f1")
    assert "the solver of f_beta must be ratio; lagrangian has steps of its own" in message


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of a ranking, and its data."""
    path = tmp_path_factory.mktemp("finished")
    x, target, _ = table(40)
    np.savez(path / "data.npz", inputs=x, target=target)
    arguments = [
        "--metric",
        "ap",
        "--data",
        str(path / "data.npz"),
        "--out",
        str(path / "run"),
        "--accelerator",
        "cpu",
    ]
    assert main(["train", "--task", "ranking", *arguments, "--epochs", "1"]) == 0
    return path


def again(capsys, finished, *more):
    options = [
        "--task",
        "ranking",
        "--metric",
        "ap",
        "--data",
        finished / "data.npz",
        "--accelerator",
        "cpu",
        "--epochs",
        1,
    ]
    return told(capsys, finished, "train", *options, *more)


def test_a_run_with_other_options_is_not_overwritten(capsys, finished):
    message = again(capsys, finished, "--out", finished / "run", "--batch-size", 8)
    assert (
        f"{finished}/run holds a run with --batch-size left out; got 8. Choose another --out"
        in message
    )


def test_a_checkpoint_of_another_model(capsys, finished, tmp_path):
    more = [
        "--out",
        tmp_path / "other",
        "--model-options",
        '{"widths": [5]}',
        "--resume",
        finished / "run" / "last.ckpt",
    ]
    message = again(capsys, finished, *more)
    assert (
        f"{finished}/run/last.ckpt is a checkpoint of another model: 1.1.bias is (64,) there and"
        " (5,) here." in message
    )
    assert not (tmp_path / "other").exists()


def test_a_checkpoint_that_would_run_code_is_not_loaded(capsys, finished, tmp_path):
    torch.save({"network": np.array([print])}, tmp_path / "bad.ckpt")
    message = again(
        capsys, finished, "--out", tmp_path / "other", "--resume", tmp_path / "bad.ckpt"
    )
    assert "bad.ckpt cannot be read as a checkpoint" in message


def test_weights_of_another_model(capsys, finished, tmp_path):
    shutil.copytree(finished / "run", tmp_path / "run")
    description = json.loads((tmp_path / "run" / "model.json").read_text())
    (tmp_path / "run" / "model.json").write_bytes(
        sealed({**description, "model_options": {"widths": [7]}})
    )
    message = told(capsys, tmp_path, "evaluate", tmp_path / "run", "--data", finished / "data.npz")
    assert f"{tmp_path}/run/best.safetensors is a checkpoint of another model" in message
    (tmp_path / "run" / "model.json").write_text("{}")
    assert "model.json must have the fields" in told(
        capsys,
        tmp_path,
        "predict",
        tmp_path / "run",
        "--data",
        finished / "data.npz",
        "--out",
        tmp_path / "out",
    )
    assert "Pass the --out folder of a finished `evalgrad train`" in told(
        capsys, tmp_path, "evaluate", tmp_path / "nothing", "--data", finished / "data.npz"
    )


def test_data_that_the_model_was_not_trained_for(capsys, finished, tmp_path):
    run = finished / "run"
    np.savez(tmp_path / "wide.npz", inputs=np.zeros((4, 9)), target=np.array([0, 1, 0, 1]))
    message = told(
        capsys, tmp_path, "predict", run, "--data", tmp_path / "wide.npz", "--out", tmp_path / "out"
    )
    assert "the model takes 3 channels or columns; got 9." in message
    message = told(
        capsys,
        tmp_path,
        "evaluate",
        run,
        "--data",
        write_table(tmp_path / "data.csv"),
        "--metric",
        "miou",
    )
    assert "--metric miou is a metric of segmentation" in message
    message = told(
        capsys, tmp_path, "predict", run, "--data", tmp_path / "data.xls", "--out", tmp_path / "out"
    )
    assert "--data must be a folder of images or .npz, because the model was not" in message
    lost = ("--data", tmp_path / "lost.npz", "--out", tmp_path / "out")
    message = told(capsys, tmp_path, "predict", run, *lost)
    assert "--data must exist; there is no" in message
    message = told(capsys, tmp_path, "evaluate", tmp_path / "none")
    assert "none/model.json is missing. Pass the --out folder of a finished" in message


def test_a_table_for_a_model_without_columns_is_told(tmp_path):
    with pytest.raises(UserError, match=r"folder of images or .npz, because the model was not"):
        read_inputs(write_table(tmp_path / "data.csv"), [])


def test_rows_for_a_model_of_images_are_told(capsys, tmp_path, folder):
    fixed = ["--task", "segmentation", "--metric", "miou", "--accelerator", "cpu", "--epochs", "1"]
    run = tmp_path / "run"
    assert main(["train", *fixed, "--data", str(folder), "--out", str(run)]) == 0
    np.savez(tmp_path / "rows.npz", inputs=np.zeros((4, 1)))  # as many columns as channels
    arguments = ("predict", run, "--data", tmp_path / "rows.npz", "--out", tmp_path / "out")
    message = told(capsys, tmp_path, *arguments)
    assert "rows.npz: the model takes images; got inputs of the shape (1,)." in message


def test_a_missing_option_is_told_without_a_page_of_others(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--task", "ranking"])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "usage: evalgrad train ...; `evalgrad train --help` lists the options"
    assert "required: --metric, --data, --out" in said[1]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("train", ["--task", "--metric", "--data", "--out", "--loss"]),
        ("evaluate", ["--data", "--metric"]),
    ],
)
def test_help_begins_with_what_is_the_commands_own(capsys, command, flags):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    listed = re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.M)
    assert listed[: len(flags)] == flags
    assert listed.index("--tiles") > len(flags)


def test_the_docstring_of_options_begins_with_its_own():
    described = re.findall(r"^    (\w+): ", TrainOptions.__doc__, re.M)
    assert described[:4] == ["task", "metric", "data", "out"]
    assert {*described} == {one.name for one in fields(TrainOptions)}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tiles", "2"], "--tiles, --overlap, --scales and --flips are for segmentation"),
        (["--crops", "8"], "--crops is for the classification of images"),
    ],
)
def test_views_that_do_not_fit(capsys, finished, more, message):
    assert message in told(
        capsys, finished, "evaluate", finished / "run", "--data", finished / "data.npz", *more
    )
