"""A metric that is undefined on some examples is said to be so, and never reported as 0."""

import json

import numpy as np
import pytest
import torch

from evalgrad_lab import (
    CompareOptions,
    EvaluateOptions,
    TrainOptions,
    compare,
    evaluate,
    metrics,
    train,
)
from evalgrad_lab.cli import main
from evalgrad_lab.decisions import plain
from evalgrad_lab.errors import UserError
from evalgrad_lab.judging import choose, judge

QUICK = {"epochs": 1, "loss": "bce", "accelerator": "cpu"}


def write(path, *targets, count=60):
    """Rows of two numbers with 0/1 columns; a function of the row number says each."""
    x = np.random.default_rng(0).normal(size=(count, 2))
    rows = [",".join(map(str, [*row, *(t(i) for t in targets)])) for i, row in enumerate(x)]
    names = ["target"] if len(targets) == 1 else ["red", "green"]
    path.write_text("\n".join([",".join(["a", "b", *names]), *rows]))
    return path


def half(i):
    return i % 2


def never(i):
    return 0


@pytest.fixture
def ranking(tmp_path):
    data, test = write(tmp_path / "d.csv", half), write(tmp_path / "t.csv", never, count=5)
    return {"task": "ranking", "metric": "ap", "data": data, "test_data": test}


def test_train_says_that_the_test_metric_is_undefined(ranking, tmp_path, capsys):
    options = TrainOptions(**ranking, **QUICK, out=tmp_path / "run")
    assert main(["train", *options.arguments()]) == 0
    said = capsys.readouterr()
    assert "t.csv: the test data should have items with target 0 and with target 1" in said.err
    assert ", test undefined; model in" in said.out
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (stored["test"], stored["by_default"], stored["part"]) == (None, None, "test")
    assert stored["validation"] > 0
    assert "undefined on test data" in (tmp_path / "run" / "report.html").read_text()
    again = train(options)  # which reads what is stored
    assert (again.test, again.part) == (None, "test")


def test_evaluate_says_so_too(ranking, tmp_path, capsys):
    train(TrainOptions(**ranking, **QUICK, out=tmp_path / "run"))
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "ap is undefined on 5 examples of the test part" in said
    assert "they should have items with target 0 and with target 1;" in said
    stored = json.loads((tmp_path / "run" / "evaluation" / "result.json").read_text())
    assert stored["value"] is None


def test_a_label_that_the_test_part_misses_is_named(tmp_path, capsys):
    data, test = write(tmp_path / "d.csv", half, half), write(tmp_path / "t.csv", half, never)
    options = {"task": "multilabel", "metric": "ap", "data": data, "test_data": test}
    options |= {"target": "red,green", "out": tmp_path / "run"}
    result = train(TrainOptions(**options, **QUICK))
    assert "items with target 0 and with target 1 of green" in capsys.readouterr().err
    assert [row["ap"] is None for row in result.classes] == [False, True]
    assert result.test == pytest.approx(result.classes[0]["ap"])
    found = evaluate(EvaluateOptions(run=tmp_path / "run"))
    assert found.note == "items with target 0 and with target 1 of green"


def test_compare_refuses_such_test_data(ranking, tmp_path):
    with pytest.raises(UserError, match=r"t\.csv: the test data should have .* Add test data"):
        compare(CompareOptions(**ranking, out=tmp_path))


def test_nothing_is_chosen_where_nothing_is_defined():
    measure = metrics.find("ap", "ranking").measure(2, 255)
    scored = [(torch.randn(6), torch.tensor([1, 1, 1, 0, 0, 0]), torch.arange(6) // 3)]
    assert choose(measure, scored, [plain(True)])[1] == 1
    area = metrics.find("auc", "ranking").measure(2, 255)
    with pytest.raises(UserError, match="undefined on the validation data"):
        choose(area, [(torch.randn(3), torch.ones(3).long(), None)], [plain(True)])


def test_a_network_that_diverged_has_0_and_not_nothing():
    target = torch.tensor([0, 1, 1])
    scored = [(torch.full((3,), torch.nan), target, None)]
    assert judge(metrics.find("auc", "ranking"), scored, ["0", "1"], 255, plain(True)).value == 0


def test_a_class_without_examples_has_no_accuracy():
    scored = [(torch.eye(4)[:3], torch.arange(3), None)]
    metric = metrics.find("top2", "classification")
    rows = judge(metric, scored, list("abcd"), 255, plain(False)).classes
    assert [row["top2"] for row in rows] == [1, 1, 1, None]
