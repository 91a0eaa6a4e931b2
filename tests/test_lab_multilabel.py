"""Tasks with several labels for each item: read, trained, measured, and refused where they are
wrong.
"""

import csv

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from training_data import table as numbers

from evalgrad_lab import (
    EvaluateOptions,
    PredictOptions,
    TrainOptions,
    evaluate,
    metrics,
    predict,
    saved,
    train,
)
from evalgrad_lab.commands.evaluate import main as evaluate_command
from evalgrad_lab.commands.train import main as train_command
from evalgrad_lab.data.files.read import Reading, read
from evalgrad_lab.errors import UserError


def write(path, count=120):
    """Rows of three numbers with two labels, as a CSV and as an .npz."""
    x, first, _ = numbers(count)
    second = (x[:, 2] > 0.5).astype(int)
    lines = [",".join(map(str, [*row, a, b])) for row, a, b in zip(x, first, second)]
    (path / "data.csv").write_text("\n".join(["a,b,c,red,green", *lines]))
    np.savez(path / "data.npz", inputs=x, target=np.stack([first, second], 1))
    return x, np.stack([first, second], 1)


def test_both_forms_are_read_alike(tmp_path):
    x, target = write(tmp_path)
    table = read(tmp_path / "data.csv", Reading("multilabel", "red,green"))
    npz = read(tmp_path / "data.npz", Reading("multilabel"))
    assert (table.classes, table.columns) == (["red", "green"], ["a", "b", "c"])
    assert npz.classes == ["0", "1"]
    for found in (table, npz):
        assert torch.equal(found.train.labels(), torch.tensor(target))
        assert torch.allclose(found.train.inputs[5], torch.tensor(x[5]).float())


def test_every_part_has_its_share_of_each_label(tmp_path):
    generator = np.random.default_rng(0)
    target = generator.random((400, 3)) < np.array([0.07, 0.4, 0.95])
    np.savez(tmp_path / "data.npz", inputs=generator.normal(size=(400, 2)), target=target * 1)
    found = read(tmp_path / "data.npz", Reading("multilabel"))
    for split in range(20):
        data = found.complete(0.2, 0.2, split, split)
        rare = [part.labels().double() for part in (data.train, data.validation, data.test)]
        positives = [part[:, 0].sum().item() for part in rare]
        negatives = [(1 - part[:, 2]).sum().item() for part in rare]
        for counts in (positives, negatives):
            shares = np.array(counts) / sum(counts)
            assert shares == pytest.approx([0.6, 0.2, 0.2], abs=2 / sum(counts))
        assert [part[:, 1].mean().item() for part in rare] == pytest.approx([0.4] * 3, abs=0.1)


def test_the_batch_size_follows_the_rarest_label(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(320, 2))
    target = np.stack([np.arange(320) % 2, np.arange(320) < 16], 1) * 1
    np.savez(tmp_path / "data.npz", inputs=x, target=target)
    options = {"task": "multilabel", "metric": "ap", "data": tmp_path / "data.npz", "epochs": 1}
    options |= {"loss": "bce", "accelerator": "cpu"}
    result = train(TrainOptions(**options, out=tmp_path / "run"))
    # 10 of 193 are positive: 0.948^16 = 0.43 of the batches have none; 0.948^64 = 0.03
    said = "43% of the batches of 16 would have no positive of 1"
    assert f"--batch-size 64 is used: {said}" in capsys.readouterr().err
    assert result.steps == 193 // 64
    train(TrainOptions(**options, out=tmp_path / "asked", batch_size=8))
    assert "65% of the batches of 8 would have no positive of 1; a" in capsys.readouterr().err


def test_lists_are_refused(tmp_path):
    """Of the column `--group` names, and of the array."""
    x, target = write(tmp_path)
    group = np.arange(len(x)) // 10
    np.savez(tmp_path / "lists.npz", inputs=x, target=target, group=group)
    options = {"task": "multilabel", "metric": "ap", "out": tmp_path / "run"}
    named = {"target": "red,green", "group": "a"}
    for data, more in (("lists.npz", {}), ("data.csv", named)):
        with pytest.raises(UserError, match="lists are for --task ranking; each label"):
            train(TrainOptions(**options, **more, data=tmp_path / data))


def test_a_metric_of_the_ranking_is_printed_for_each_label_without_a_matrix(tmp_path, capsys):
    write(tmp_path)
    options = {"task": "multilabel", "metric": "ap", "data": tmp_path / "data.npz", "epochs": 1}
    out = tmp_path / "run"
    assert train_command(TrainOptions(**options, loss="bce", accelerator="cpu", out=out)) == 0
    trained = capsys.readouterr().out
    assert evaluate_command(EvaluateOptions(run=out)) == 0
    measured = capsys.readouterr().out
    for text, last in ((trained, "bce for ap: validation"), (measured, "All numbers:")):
        assert {"class", "count", "ap"} <= {*text.split()}
        assert last in text
        assert "predicted" not in text


@pytest.mark.parametrize(
    ("metric", "loss"),
    [
        ("ap", "direct_average_precision"),
        ("f1", "f_beta"),
        ("auc", "roc_auc"),
        ("miou", "lovasz_hinge"),
    ],
)
def test_every_metric_is_trained_for(tmp_path, metric, loss):
    x, target = write(tmp_path)
    options = {"task": "multilabel", "metric": metric, "data": tmp_path / "data.csv"}
    options |= {"out": tmp_path / "run", "target": "red,green", "epochs": 15, "test": 0.0}
    options |= {"loss": loss, "batch_size": 32, "learning_rate": 0.02, "accelerator": "cpu"}
    assert metrics.find(metric, "multilabel").loss == loss
    result = train(TrainOptions(**options))
    description, network = saved.read(tmp_path / "run")
    assert (description.loss, description.outputs) == (loss, 2)
    assert result.validation > 0.6
    with torch.no_grad():
        scores = network(torch.tensor(x).float())
    data = {"run": tmp_path / "run", "data": tmp_path / "data.csv"}
    if metric == "ap":
        found = evaluate(EvaluateOptions(**data, include_trained=True))
        assert found.value == pytest.approx(average_precision_score(target, scores), abs=1e-6)
        assert list(found.classes[0]) == ["class", "count", "ap"]  # nothing is decided
    if metric == "f1":
        predict(PredictOptions(**data, out=tmp_path / "out", probabilities=True))
        text = (tmp_path / "out" / "predictions.csv").read_text()
        rows = list(csv.DictReader(text.splitlines()))
        assert [float(row["score_green"]) for row in rows] == pytest.approx(scores[:, 1].tolist())
        decided = scores[:, 0] > description.decision.numbers[0]
        assert [int(row["prediction_red"]) for row in rows] == decided.long().tolist()
        chances = torch.sigmoid(scores[:, 0]).tolist()
        assert [float(row["probability_red"]) for row in rows] == pytest.approx(chances)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("red", "--target must name at least two columns for multilabel"),
        ("red,blue", "has no column 'blue'"),
        ("red,a", "line 2: a must be 0 or 1; got"),
    ],
)
def test_wrong_columns_are_told(tmp_path, target, message):
    write(tmp_path)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "data.csv", Reading("multilabel", target))


def test_wrong_arrays_are_told(tmp_path):
    np.savez(tmp_path / "flat.npz", inputs=np.zeros((4, 2)), target=np.array([0, 1, 0, 1]))
    with pytest.raises(UserError, match=r"target must have the shape \(4, 2\) for multilabel"):
        read(tmp_path / "flat.npz", Reading("multilabel"))
    np.savez(tmp_path / "two.npz", inputs=np.zeros((2, 2)), target=np.array([[0, 1], [2, 0]]))
    with pytest.raises(UserError, match=r"example 1: the target must be 0 or 1; got \[2, 0\]"):
        read(tmp_path / "two.npz", Reading("multilabel"))


def test_a_label_that_never_occurs_is_told(tmp_path):
    lines = [f"{i},{i % 2},0" for i in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(["a,red,green", *lines]))
    options = {"task": "multilabel", "metric": "ap", "data": tmp_path / "data.csv"}
    with pytest.raises(UserError, match=r"with target 0 and with target 1 of green. Add data"):
        train(TrainOptions(**options, out=tmp_path / "run", target="red,green"))
