"""Options of a training, of its losses above all: wrong ones are told before the first step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from recipe_data import options

from evalgrad_lab import (
    train,
)
from evalgrad_lab.errors import UserError
from evalgrad_lab.ready import prepare


@pytest.mark.parametrize(
    ("task", "metric", "own", "text"),
    [
        ("classification", "top2", {"positive_weight": 0.5}, "share, weight_power, k, temperature"),
        ("classification", "accuracy", {"share": 0.2}, "has no second branch; it takes weight_pow"),
        ("ranking", "ap", {"weight_power": 1.0}, "takes share, positive_weight, epsilon, "),
        ("ranking", "f1", {"depth": 2}, r"takes share, positive_weight, .*\. Got depth\.$"),
    ],
)
def test_options_that_are_not_taken_are_told_by_name(tmp_path, task, metric, own, text):
    x, target = (
        np.random.rand(90, 3).astype(np.float32),
        np.arange(90) % (2 if task == "ranking" else 3),
    )
    np.savez(tmp_path / "items.npz", inputs=x, target=target)
    asked = {"task": task, "metric": metric, "data": tmp_path / "items.npz"}
    with pytest.raises(UserError, match=text) as told:
        prepare(options(tmp_path, **asked, loss_options=own))
    assert "tensor" not in str(told.value)
    assert str(told.value).endswith(f"Got {next(iter(own))}.")


def test_options_of_a_named_loss_are_told_without_the_data(tmp_path):
    with pytest.raises(UserError, match="f_beta does not take the options depth; it takes") as told:
        train(options(tmp_path, metric="f1", loss="f_beta", loss_options={"depth": 2}))
    assert "tensor" not in str(told.value)
    assert "labels" not in str(told.value)
    with pytest.raises(UserError, match=r"f_beta does not take the options {'beta': -1.0}") as told:
        train(options(tmp_path, metric="f1", loss="f_beta", loss_options={"beta": -1.0}))


@pytest.mark.parametrize("wrong", ["x", -1, None])
def test_wrong_weights_of_classes_are_told(tmp_path, wrong):
    def refused(text, **given):
        with pytest.raises(UserError, match=text):
            prepare(options(tmp_path, **given)).phases()

    for loss in ("auto", "bce"):
        own = {"positive_weight": wrong}
        text = "`positive_weight` must be a finite number above 0; got"
        refused(text, metric="f1", loss=loss, loss_options=own)
    classes = {"task": "classification", "metric": "f1"}
    text = "weight_power must be a number from 0 to 10; got"
    for loss in ("auto", "weighted_cross_entropy"):
        refused(text, **classes, loss=loss, loss_options={"weight_power": wrong})
    for weight in (wrong, [1.0], [1.0, wrong], [0, 0], [1.0, 2.0, 3.0]):
        if weight is not None:
            own = {"weight": weight}
            text = "weight must be a list of 2 numbers, one for each class"
            refused(text, **classes, loss="weighted_cross_entropy", loss_options=own)


@pytest.mark.parametrize(
    ("metric", "loss"), [("accuracy", "auto"), ("f1", "weighted_cross_entropy")]
)
def test_class_weights_are_given_or_computed(tmp_path, metric, loss):
    both = {"weight": [1.0, 2.0], "weight_power": 0.5}
    asked = {"task": "classification", "metric": metric, "loss": loss}
    with pytest.raises(UserError, match=r"is what weight_power computes .* Drop one of them"):
        prepare(options(tmp_path, **asked, loss_options=both)).phases()


@pytest.mark.parametrize("loss", ["auto", "lovasz_softmax"])
@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"weight": [1.0, 2.0, 3.0]}, r"lovasz_softmax: .*`weight` must be of shape \(2,\)"),
        ({"classes": [7]}, r"lovasz_softmax: .*`classes` must be in \[0, 1\]; got 7"),
    ],
)
def test_options_that_only_a_batch_shows_to_be_wrong_are_told_first(tmp_path, loss, own, text):
    """Not by the second branch, when the first has been trained."""
    classes = {"task": "classification", "metric": "f1", "loss": loss}
    with pytest.raises(UserError, match=text):
        train(options(tmp_path, **classes, loss_options=own))
    assert not (tmp_path / "run" / "log.csv").exists()


@pytest.mark.parametrize("loss", ["auto", "direct_average_precision"])
def test_a_loss_that_is_not_reduced_is_refused(tmp_path, loss):
    asked = options(tmp_path, loss=loss, loss_options={"reduction": "none"})
    with pytest.raises(UserError, match="must be mean or sum; got 'none'"):
        prepare(asked).phases()


@pytest.mark.parametrize("wrong", ["255", 2.0, [1], True])
def test_an_ignored_label_that_is_no_integer_is_refused(tmp_path, wrong):
    asked = options(tmp_path, loss="bce", loss_options={"ignore_index": wrong})
    with pytest.raises(UserError, match="ignore_index of bce must be an integer; got"):
        prepare(asked).phases()


def test_rates_of_0_are_kept(tmp_path):
    """They are not the default."""
    pace = prepare(options(tmp_path, learning_rate=0.0)).pace()
    assert pace.learning_rate == 0
    network = torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2), "fc": torch.nn.Linear(2, 2)})
    groups = replace(pace, learning_rate=0.1, head_rate=0.0).make_optimiser(network).param_groups
    assert sorted(group["lr"] for group in groups) == [0.0, 0.0, 0.1]


@pytest.mark.parametrize("name", ["target", "group"])
def test_a_column_of_a_file_without_columns_is_refused(tmp_path, name):
    with pytest.raises(UserError, match=f"--{name} names a column of a .csv; --data is .*items"):
        prepare(options(tmp_path, **{name: "query"}))


def test_a_mixture_of_its_own_is_refused(tmp_path):
    with pytest.raises(UserError, match="Drop --mix, or name the loss to mix: --loss direct"):
        train(options(tmp_path, mix="sum:0.5"))
