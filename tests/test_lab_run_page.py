"""The page of a training: what it shows is what the network says, in a file that needs nothing
else.
"""

import argparse
import base64
import csv
import html
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from report_reading import Tree
from sklearn.metrics import confusion_matrix, jaccard_score
from training_data import write_colours, write_segmentation, write_table

from evalgrad_lab import TrainOptions, saved, train
from evalgrad_lab.data.files.folders import read_image, read_mask
from evalgrad_lab.options import parse
from evalgrad_lab.report.run_page import MOST_CLASSES, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    for part, count in (("train", 12), ("val", 4), ("test", 7)):
        write_segmentation(path / "data" / part, count=count, seed=count)
    options = {"task": "segmentation", "metric": "miou", "data": path / "data", "epochs": 3}
    options |= {"model_options": {"width": 4}, "batch_size": 4, "learning_rate": 0.03}
    train(TrainOptions(**options, out=path / "run", accelerator="cpu"))
    return path


@pytest.fixture(scope="module")
def page(run):
    return Tree((run / "run" / "report.html").read_text())


def predicted(run):
    """What the network says of the test images, and their masks."""
    description, network = saved.read(run / "run")
    folder = run / "data" / "test"
    names = sorted(file.name for file in (folder / "images").iterdir())
    images = torch.stack([read_image(folder / "images" / name, grey=True) for name in names])
    with torch.no_grad():
        offsets = torch.tensor(description.decision.numbers or [0.0] * 3)
        labels = (network(images) + offsets.view(-1, 1, 1)).argmax(1)
    return labels, torch.stack([read_mask(folder / "masks" / name) for name in names])


def test_the_table_and_the_confusion_are_those_of_the_network(run, page):
    labels, masks = (x.flatten() for x in predicted(run))
    result = json.loads((run / "run" / "result.json").read_text())
    expected = confusion_matrix(masks, labels, labels=[0, 1, 2])
    assert result["confusion"] == expected.tolist()
    shown = [int(a["data-count"]) for a, _ in page.having("data-count")]
    assert shown == expected.flatten().tolist()
    cells = {
        (a["data-class"], a["data-name"]): a["data-value"] for a, _ in page.having("data-name")
    }
    ious = jaccard_score(masks, labels, average=None, labels=[0, 1, 2], zero_division=0)
    for row, iou in zip(result["classes"], ious):
        assert row["iou"] == pytest.approx(iou)
        assert float(cells[row["class"], "iou"]) == pytest.approx(iou)
        assert cells[row["class"], "count"] == str((masks == int(row["class"])).sum().item())
    assert result["test"] == pytest.approx(ious.mean())
    values = {a["data-part"]: float(a["data-value"]) for a, _ in page.having("data-part")}
    assert values == {part: result[part] for part in ("test", "validation")}


def test_the_curves_are_those_of_the_log(run, page):
    rows = list(csv.DictReader((run / "run" / "log.csv").read_text().splitlines()))
    lines = [a["d"] for a, _ in page.having("d", "class") if a["class"].startswith("line ")]
    for name, path in zip(("loss", "metric"), lines, strict=True):
        heights = [float(pair.split()[1]) for pair in path[1:].split("L")]
        values = np.array([float(row[name]) for row in rows])
        low, high = values.min(), values.max()
        assert heights == pytest.approx(200 - 190 * (values - low) / (high - low), abs=0.06)


def test_the_pictures_are_images_targets_and_predictions(run, page):
    labels, masks = predicted(run)
    pictures = [a["src"].partition(",")[2] for a, _ in page.having("src")]
    opened = [np.array(Image.open(io.BytesIO(base64.b64decode(p)))) for p in pictures]
    assert len(opened) == 3 * 4
    for i in range(4):
        assert np.array_equal(opened[3 * i + 1], masks[i].numpy())
        assert np.array_equal(opened[3 * i + 2], labels[i].numpy())


def test_images_are_shown_with_their_classes(tmp_path):
    data = write_colours(tmp_path / "data", count=10)
    options = {"task": "classification", "metric": "accuracy", "data": data, "accelerator": "cpu"}
    options |= {"model_options": {"depth": 7, "growth": 4}, "batch_size": 4, "epochs": 1}
    train(TrainOptions(**options, out=tmp_path / "run"))
    description, network = saved.read(tmp_path / "run")
    page = Tree((tmp_path / "run" / "report.html").read_text())
    captions = [words for name, _, words in page.elements if name == "figcaption"]
    shown = [(a["alt"], a["src"].partition(",")[2]) for a, _ in page.having("src")]
    assert len(shown) == 6  # a fifth of 30
    assert len({name.split("/")[-2] for name, _ in shown}) == 3
    for (name, picture), caption in zip(shown, captions[-6:], strict=True):
        image = read_image(data / name.split("data/")[-1], grey=False)
        assert np.array(Image.open(io.BytesIO(base64.b64decode(picture)))).shape == (12, 12, 3)
        with torch.no_grad():
            chances = network(image[None]).softmax(1)[0]
        predicted, true = description.classes[chances.argmax()], name.split("/")[-2]
        said = f"{predicted}, {100 * chances.max():.1f} %"
        said = f"✓ {said}" if true == predicted else f"✗ {said}; it is {true}"
        assert " ".join("".join(caption).split()) == said


@pytest.mark.parametrize("metric", ["f1", "ap"])
def test_the_most_certain_mistakes_in_a_table_are_shown(tmp_path, metric):
    data = write_table(tmp_path / "data.csv")
    options = {"task": "ranking", "metric": metric, "data": data, "loss": "bce", "epochs": 1}
    options |= {"accelerator": "cpu", "out": tmp_path / "run"}
    result = train(TrainOptions(**options))
    page = Tree((tmp_path / "run" / "report.html").read_text())
    cells = [words for _, words in page.having("data-mistake")]
    if metric == "ap":  # nothing is decided, so nothing is a mistake
        assert result.decision is None
        assert not cells
        return
    mistakes = result.confusion[0][1] + result.confusion[1][0]
    assert len(cells) == 3 * min(mistakes, 8) > 0
    (threshold,) = result.decision.numbers
    scores = []
    for true, predicted, probability in zip(cells[::3], cells[1::3], cells[2::3]):
        assert {true, predicted} == {"0", "1"}
        sure = float(probability) / 100
        scores.append((1 if predicted == "1" else -1) * np.log(sure / (1 - sure)))
    margins = np.abs(np.array(scores) - threshold)
    assert (margins[:-1] >= margins[1:] - 0.01).all()
    said = (tmp_path / "run" / "report.html").read_text()
    assert "data, the farthest from the threshold first; the probability" in said


def test_the_command_makes_the_run_again(run):
    text = (run / "run" / "report.html").read_text()
    words = shlex.split(html.unescape(re.search(r"<code>(.*?)</code>", text)[1]))
    assert words[:2] == ["evalgrad", "train"]
    found = parse(TrainOptions, argparse.ArgumentParser(), words[2:])
    stored = json.loads((run / "run" / "options.json").read_text())
    assert found.plain(elsewhere=False).items() <= stored.items()


def test_the_page_needs_nothing_else(run, page):
    text = (run / "run" / "report.html").read_text()
    assert not re.search(r"https?:|@import|url\(|<script", text)
    assert "prefers-color-scheme: dark" in text
    assert all(a["scope"] in ("row", "col") for name, a, _ in page.elements if name == "th")


def write(folder, classes, confusion, task="classification", curves=None, recipe=None):
    rates = {"count": 1, "precision": None, "recall": 0.5, "f1": 0.5, "iou": 0.5}
    table = [{"class": name, **rates} for name in classes]
    result = {"metric": "accuracy", "loss": "ce", "validation": 0.5, "test": None, "decision": None}
    recipe = {"chosen": "ce", "why": "kept <bce>", **(recipe or {})}
    result |= {"classes": table, "confusion": confusion, "recipe": recipe, "part": "validation"}
    curve = [{"epoch": 1, "step": 3, "loss": 0.5, "metric": 0.25, "seconds": 1.0}]
    options = TrainOptions(task=task, metric="accuracy", data=Path("<data>"), out=folder)
    write_run(options, result, curves or [curve], [])
    return (folder / "report.html").read_text()


def test_both_branches_are_drawn_from_the_fork_with_the_choice_and_its_reason(tmp_path):
    values = [[0.2, 0.5, 0.6, 0.6], [0.3, 0.7]]
    logs = [
        [
            {"epoch": n, "step": 3 * n, "loss": 1 / n, "metric": v, "seconds": n}
            for n, v in enumerate(log, 1)
        ]
        for log in values
    ]
    recipe = {"fork_epoch": 2.8, "chosen": "0.5 ce + 0.5 topk", "why": "took it: +1.00 points."}
    text = write(tmp_path, ["a", "b"], [[1, 2], [3, 4]], curves=logs, recipe=recipe)
    assert "trained on ce, which chose 0.5 ce + 0.5 topk" in text
    assert "took it: +1.00 points." in text
    assert "4 epochs and a second branch, 18 steps, 6.0 s" in text
    drawn = [a for a, _ in Tree(text).having("d", "class") if a["class"].startswith("line ")]
    _, first, second = (
        [tuple(map(float, pair.split())) for pair in a["d"][1:].split("L")] for a in drawn
    )
    across = lambda epoch: 40 + 366 * epoch / 4.8  # the last epoch of the longer branch  # noqa: E731
    up = lambda value: 200 - 190 * (value - 0.2) / 0.5  # noqa: E731
    for points, begin, branch in ((first, 0, values[0]), (second, 2.8, values[1])):
        expected = [(across(begin + n), up(value)) for n, value in enumerate(branch, 1)]
        assert np.array(points) == pytest.approx(np.array(expected), abs=0.06)
    assert [a["class"] for a in drawn[1:]] == ["line baseline0", "line ours0"]


def test_a_second_branch_ends_with_the_first_where_its_last_epoch_is_a_part(tmp_path):
    """12 epochs of 6 steps, and from step 51 on 21 steps: three epochs and a half."""
    row = {"loss": 0.5, "seconds": 1.0}
    first = [{**row, "epoch": n, "step": 6 * n, "metric": n / 12} for n in range(1, 13)]
    rest = ((1, 6), (2, 12), (3, 18), (4, 21))
    second = [{**row, "epoch": n, "step": step, "metric": 0.5} for n, step in rest]
    text = write(tmp_path, ["a"], [[1]], curves=[first, second], recipe={"fork_epoch": 8.5})
    drawn = [a["d"] for a, _ in Tree(text).having("d", "class") if a["class"].startswith("line ")]
    ends = [float(path.split("L")[-1].split()[0]) for path in drawn[1:]]
    assert ends == pytest.approx([406, 406])  # the right edge


def test_names_are_escaped_and_0_by_0_is_empty(tmp_path):
    text = write(tmp_path, ["<b>", "cat"], [[1, 2], [3, 4]])
    assert "<b>" not in text
    assert "<data>" not in text
    assert "kept &lt;bce&gt;" in text
    cells = Tree(text).having("data-name")
    assert {words for a, words in cells if a["data-name"] == "precision"} == {""}


def test_a_large_matrix_and_those_of_labels_are_left_to_the_file(tmp_path):
    count = MOST_CLASSES + 1
    many = write(tmp_path, list(map(str, range(count))), np.eye(count, dtype=int).tolist())
    labels = write(tmp_path, ["a", "b"], np.zeros((2, 2, 2), int).tolist(), "multilabel")
    for text in (many, labels):
        assert not Tree(text).having("data-count")
        assert "The confusion matrix is in result.json" in text
