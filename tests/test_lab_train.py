"""`evalgrad train`, `evaluate` and `predict` from end to end on data that the tests write."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import f1_score
from training_data import table, write_colours, write_segmentation, write_table

from evalgrad import metrics
from evalgrad_lab import metrics as metrics_by_name
from evalgrad_lab import saved
from evalgrad_lab.cli import main
from evalgrad_lab.data.files import folders

QUICK = ["--accelerator", "cpu", "--test", "0"]
# A network with dropout, so that the random numbers matter; slow if it is told to be.
SLOW_NET = """
import os, time, torch

class Net(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        first, last = torch.nn.Conv2d(inputs, 8, 5, padding=2), torch.nn.Conv2d(8, outputs, 1)
        self.layers = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout2d(0.3), last)

    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return self.layers(x)
"""


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def evaluated(capsys, *arguments):
    """What `evaluate` prints, on all of the data: what is trained on too, unless it is val/."""
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments), "--include-trained"]) == 0
    return float(re.search(r" (\d\.\d+) on", capsys.readouterr().out)[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with data and a training that was not interrupted, and its arguments."""
    path = tmp_path_factory.mktemp("whole")
    (path / "slow_net.py").write_text(SLOW_NET)
    write_segmentation(path / "data")
    arguments = [
        "train",
        "--task",
        "segmentation",
        "--metric",
        "miou",
        "--data",
        "data",
        "--model",
        "slow_net:Net",
        "--loss",
        "lovasz_softmax",
        *QUICK,
    ]
    arguments += [
        "--epochs",
        "8",
        "--batch-size",
        "4",
        "--augment",
        "flip",
        "--mix",
        "then:0.5",
        "--patience",
        "8",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert main([*arguments, "--out", "whole"]) == 0
    return path, arguments


# Ctrl-C is ignored in a suite that was started in the background, and hands that down.
LISTENING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from evalgrad_lab.cli import main
sys.exit(main())
"""
GOES_ON = "evalgrad train: interrupted; finished work is kept, and the same command resumes.\n"


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (signal.SIGKILL, -signal.SIGKILL, ""),
        (signal.SIGTERM, 143, GOES_ON),
        (signal.SIGINT, 130, GOES_ON),
    ],
    ids=["SIGKILL", "SIGTERM", "SIGINT"],
)
def test_a_killed_training_resumed_ends_as_an_uninterrupted_one(
    whole, monkeypatch, ending, code, said
):
    path, arguments = whole
    monkeypatch.chdir(path)
    out = path / ending.name
    arguments = [*arguments, "--out", out.name]
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING, *arguments],
        env={**os.environ, "SLOW": "0.1", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "last.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # into the next epoch
    process.send_signal(ending)
    _, message = process.communicate(timeout=300)
    assert process.returncode == code
    assert message.endswith(said)
    assert "Traceback" not in message
    checkpoint = torch.load(out / "last.ckpt", weights_only=True)
    assert 0 < checkpoint["epoch"] < 8
    left = {file.name for file in out.iterdir()}
    if ending == signal.SIGKILL:  # which nothing can undo: what was being written may be left
        left = {name for name in left if not name.startswith(".")}
    assert left == {"last.ckpt", "log.csv", "options.json"}
    assert main(arguments) == 0
    results = [json.loads((path / run / "result.json").read_text()) for run in ("whole", out.name)]
    assert results[0] == results[1]
    assert results[0]["steps"] == 8 * 4
    first, second = (load_file(path / run / "best.safetensors") for run in ("whole", out.name))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def segmentation_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("segmentation")
    write_segmentation(path / "data" / "train")
    write_segmentation(path / "data" / "val", count=6, seed=1)
    arguments = [
        "--data",
        str(path / "data"),
        "--out",
        str(path / "run"),
        "--model-options",
        '{"width": 6}',
        *QUICK,
    ]
    assert (
        main(
            [
                "train",
                "--task",
                "segmentation",
                "--metric",
                "miou",
                *arguments,
                "--epochs",
                "12",
                "--batch-size",
                "5",
            ]
        )
        == 0
    )
    return path


def test_train_learns_and_evaluate_measures_the_same(segmentation_run, capsys):
    result = json.loads((segmentation_run / "run" / "result.json").read_text())
    assert result["validation"] > 0.6  # all background has 0.3
    assert evaluated(
        capsys, segmentation_run / "run", "--data", segmentation_run / "data"
    ) == pytest.approx(result["validation"], abs=1e-5)


def test_predict_writes_the_masks_that_evaluate_measures(segmentation_run, tmp_path, capsys):
    val = segmentation_run / "data" / "val"
    assert (
        main(
            [
                "predict",
                str(segmentation_run / "run"),
                "--data",
                str(val),
                "--out",
                str(tmp_path / "masks"),
            ]
        )
        == 0
    )
    names = sorted(file.name for file in (val / "masks").iterdir())
    assert sorted(os.listdir(tmp_path / "masks")) == names
    predicted, true = (
        torch.stack([torch.tensor(np.array(Image.open(f / name))) for name in names])
        for f in (tmp_path / "masks", val / "masks")
    )
    miou = metrics.jaccard_index(predicted.long(), true.long(), num_classes=3)
    assert evaluated(capsys, segmentation_run / "run", "--data", val) == pytest.approx(
        float(miou), abs=1e-6
    )


def test_views_change_what_is_seen_and_other_metrics_can_be_measured(segmentation_run, capsys):
    run, data = segmentation_run / "run", segmentation_run / "data"
    plain = evaluated(capsys, run, "--data", data)
    assert evaluated(
        capsys, run, "--data", data, "--tiles", "2", "--overlap", "16"
    ) == pytest.approx(plain, abs=0.2)
    assert (
        evaluated(capsys, run, "--data", data, "--tiles", "1", "--scales", "1,0.75,0.5", "--flips")
        != plain
    )
    assert evaluated(capsys, run, "--data", data, "--metric", "image-miou") > 0.5


def test_a_binary_loss_trains_one_output(tmp_path, capsys):
    data = write_segmentation(tmp_path / "data")
    for mask in (data / "masks").iterdir():
        Image.fromarray((np.array(Image.open(mask)) > 0).astype(np.uint8)).save(mask)
    arguments = [
        "--task",
        "segmentation",
        "--metric",
        "image-iou",
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        *QUICK,
    ]
    arguments += [
        "--epochs",
        "30",
        "--learning-rate",
        "0.03",
        "--batch-size",
        "4",
        "--model-options",
        '{"width": 4}',
    ]
    assert main(["train", *arguments, "--validation", "0.5"]) == 0
    assert json.loads((tmp_path / "run" / "model.json").read_text())["outputs"] == 1
    assert json.loads((tmp_path / "run" / "result.json").read_text())["validation"] > 0.5
    assert evaluated(capsys, tmp_path / "run", "--data", data, "--scales", "1,0.5", "--flips") > 0.4
    assert (
        main(
            [
                "predict",
                str(tmp_path / "run"),
                "--data",
                str(data),
                "--out",
                str(tmp_path / "masks"),
            ]
        )
        == 0
    )
    assert {
        int(v) for f in (tmp_path / "masks").iterdir() for v in np.unique(np.array(Image.open(f)))
    } <= {0, 1}


def test_images_of_different_sizes_train_in_crops(tmp_path, capsys):
    data = write_segmentation(tmp_path / "data", count=6)
    write_segmentation(tmp_path / "data", count=3, size=21)  # the first three anew, in another size
    arguments = [
        "train",
        "--task",
        "segmentation",
        "--metric",
        "image-miou",
        "--data",
        str(data),
        *QUICK,
        "--epochs",
        "1",
    ]
    arguments += ["--validation", "0.5"]
    assert main([*arguments, "--out", str(tmp_path / "no"), "--batch-size", "2"]) == 2
    assert "they have different sizes. Pass --crop SIZE" in capsys.readouterr().err
    arguments += [
        "--crop",
        "12",
        "--augment",
        "full",
        "--batch-size",
        "2",
        "--model-options",
        '{"width": 4}',
    ]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    assert (
        main(
            [
                "predict",
                str(tmp_path / "run"),
                "--data",
                str(data),
                "--out",
                str(tmp_path / "masks"),
            ]
        )
        == 0
    )
    assert [folders.read_mask(tmp_path / "masks" / f"0{i}.png").shape for i in (0, 5)] == [
        (21, 21),
        (16, 16),
    ]


def test_classes_in_folders_and_crops(tmp_path, capsys):
    data = write_colours(tmp_path / "data")
    arguments = [
        "--task",
        "classification",
        "--metric",
        "top2",
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        *QUICK,
    ]
    options = [
        "--model-options",
        '{"depth": 7, "growth": 4}',
        "--epochs",
        "3",
        "--batch-size",
        "4",
        "--augment",
        "full",
    ]
    assert main(["train", *arguments, *options]) == 0
    assert evaluated(capsys, tmp_path / "run", "--data", data, "--crops", "8") >= 2 / 3
    assert (
        main(
            [
                "predict",
                str(tmp_path / "run"),
                "--data",
                str(data / "red"),
                "--out",
                str(tmp_path / "out"),
                "--crops",
                "8",
            ]
        )
        == 0
    )
    rows = rows_of(tmp_path / "out" / "predictions.csv")
    assert len(rows) == 6
    assert all(
        {row["prediction_1"], row["prediction_2"]} < {"red", "green", "blue"} for row in rows
    )


def test_a_table_of_words_is_classified(tmp_path, capsys):
    data = write_table(tmp_path / "data.csv", target_name="answer", words=True)
    arguments = [
        "--task",
        "classification",
        "--metric",
        "accuracy",
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        *QUICK,
    ]
    assert (
        main(
            [
                "train",
                *arguments,
                "--target",
                "answer",
                "--group",
                "query",
                "--epochs",
                "5",
                "--loss",
                "weighted_cross_entropy",
            ]
        )
        == 0
    )
    accuracy = evaluated(capsys, tmp_path / "run", "--data", data)
    assert accuracy > 0.8
    assert (
        main(
            ["predict", str(tmp_path / "run"), "--data", str(data), "--out", str(tmp_path / "out")]
        )
        == 0
    )
    predicted = [row["prediction"] for row in rows_of(tmp_path / "out" / "predictions.csv")]
    true = [("no", "yes")[label] for label in table()[1]]
    assert np.mean([a == b for a, b in zip(predicted, true)]) == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize(
    ("metric", "loss"),
    [
        ("ap", "direct_average_precision"),
        ("ndcg@5", "direct_ndcg"),
        ("f1", "f_beta"),
        ("recall@precision=0.9", "recall_at_precision"),
        ("sensitivity@specificity=0.9", "sensitivity_at_specificity"),
        ("auc@fpr=0.1", "partial_roc_auc"),
    ],
)
def test_a_ranking_is_trained_for_each_metric(tmp_path, capsys, metric, loss):
    x, target, group = table()
    np.savez(tmp_path / "data.npz", inputs=x, target=target, group=group)
    assert metrics_by_name.find(metric, "ranking").loss == loss
    lists = metric == "ap"
    data = tmp_path / "data.npz" if lists else write_table(tmp_path / "data.csv")
    arguments = [
        "--task",
        "ranking",
        "--metric",
        metric,
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--loss",
        loss,
        *QUICK,
    ]
    arguments += [
        "--epochs",
        "8",
        "--learning-rate",
        "0.02",
        "--batch-size",
        "2" if lists else "16",
    ]
    if not lists:  # the column `query` is words: take it out of the inputs
        arguments += ["--group", "query"]
    assert main(["train", *arguments]) == 0
    assert saved.read_description(tmp_path / "run").loss == loss
    value = evaluated(capsys, tmp_path / "run", "--data", data)
    assert value > 0.5
    if metric == "f1":
        assert (
            main(
                [
                    "predict",
                    str(tmp_path / "run"),
                    "--data",
                    str(data),
                    "--out",
                    str(tmp_path / "out"),
                ]
            )
            == 0
        )
        rows = rows_of(tmp_path / "out" / "predictions.csv")
        assert value == pytest.approx(f1_score(target, [int(row["prediction"]) for row in rows]))
        (threshold,) = saved.read_description(tmp_path / "run").decision.numbers
        assert [int(float(row["score"]) > threshold) for row in rows] == [
            int(row["prediction"]) for row in rows
        ]


def test_losses_prints_every_loss(capsys):
    from evalgrad_lab.losses import LOSSES

    assert main(["losses"]) == 0
    guide = capsys.readouterr().out
    assert all(name in guide for name in LOSSES)
