"""Exported programs say what the network of the run says, with its decision."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from training_data import write_colours, write_segmentation, write_table

from evalgrad_lab import ExportOptions, TrainOptions, export, saved, train
from evalgrad_lab.cli import main
from evalgrad_lab.decisions import Decision
from evalgrad_lab.errors import UserError
from evalgrad_lab.exporting import Decided
from evalgrad_lab.store import sealed

# torch's exporter warns of its own parts
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def trained(tmp_path, **options):
    common = {"out": tmp_path / "run", "epochs": 1, "accelerator": "cpu", "batch_size": 4}
    train(TrainOptions(**common, **options))
    return tmp_path / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of each kind of decision, with the shape of its inputs."""
    found = {}
    for name in ("segmentation", "classification", "ranking"):
        path = tmp_path_factory.mktemp(name)
        if name == "segmentation":
            data, more = write_segmentation(path / "data"), {"metric": "miou"}
            more["model_options"], shape = {"width": 4}, (1, 16, 16)
        elif name == "classification":
            data, more = write_colours(path / "data"), {"metric": "accuracy"}
            more["model_options"], shape = {"depth": 7, "growth": 4}, (3, 12, 12)
        else:
            data = write_table(path / "data.csv")
            more, shape = {"metric": "f1", "loss": "bce", "group": "query"}, (3,)
        found[name] = trained(path, task=name, data=data, **more), shape
    return found


def size(shape):
    return tuple(map(float, shape[1:])) or None


@pytest.mark.parametrize("task", ["segmentation", "classification", "ranking"])
def test_a_program_says_what_the_network_says(runs, tmp_path, task):
    run, shape = runs[task]
    note = export(ExportOptions(run=run, out=tmp_path / "model.pt2", size=size(shape))).note
    assert ("the inputs are the columns of" in note) == (task == "ranking")
    program = torch.export.load(tmp_path / "model.pt2").module()
    description, network = saved.read(run)
    for count in (1, 5):
        inputs = torch.rand(count, *shape)
        labels, probabilities = program(inputs)
        with torch.no_grad():
            scores = network(inputs)
        if task == "ranking":
            (threshold,) = description.decision.numbers
            assert torch.equal(labels, (scores > threshold).long())
            torch.testing.assert_close(probabilities, 1 / (1 + torch.exp(-scores)))
        else:
            offsets = torch.tensor(description.decision.numbers or 0.0)
            shifted = scores + offsets.view(-1, *[1] * (scores.ndim - 2))
            assert torch.equal(labels, shifted.argmax(1))
            torch.testing.assert_close(probabilities, scores.softmax(1))


@pytest.mark.parametrize("task", ["segmentation", "ranking"])
def test_onnx_says_what_the_network_says(runs, tmp_path, task):
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    run, shape = runs[task]
    command = ["export", str(run), "--out", str(tmp_path / "model.onnx"), "--format", "onnx"]
    assert main([*command, *(["--size", "16,16"] if task == "segmentation" else [])]) == 0
    program = evaluator(str(tmp_path / "model.onnx"))
    inputs = torch.rand(3, *shape)
    labels, probabilities = program.run(None, {"inputs": inputs.numpy()})
    description, network = saved.read(run)
    with torch.no_grad():
        expected = Decided(network, description.kind, description.decision)(inputs)
    assert np.array_equal(labels, expected[0].numpy())
    np.testing.assert_allclose(probabilities, expected[1].numpy(), atol=1e-5)


def test_the_decision_and_the_kind_decide():
    def said(kind, decision, scores):
        return Decided(torch.nn.Identity(), kind, decision)(scores)

    scores = torch.tensor([[0.2, 2.0], [0.6, -1.0]])
    cut = Decision("threshold", [0.5])
    assert said("multilabel", cut, scores)[0].tolist() == [[0, 1], [1, 0]]
    assert said("multilabel", Decision("threshold", [0.1, 3.0]), scores)[0].tolist() == [
        [1, 0],
        [1, 0],
    ]
    assert said("ranking", cut, scores[:, :1])[0].tolist() == [0, 1]
    labels, chances = said("segmentation", Decision("threshold", [1.0]), scores)
    assert labels.tolist() == [1, 0]  # the second score is more than 1 above the first
    torch.testing.assert_close(chances, scores.softmax(1))
    assert said("classification", Decision("class_offsets", [2.0, 0.0]), scores)[0].tolist() == [
        0,
        0,
    ]


def test_masks_are_exported_as_the_next_best_threshold_and_said_so(tmp_path):
    write_segmentation(tmp_path / "data")
    for file in (tmp_path / "data" / "masks").iterdir():
        Image.fromarray((np.array(Image.open(file)) > 0).astype(np.uint8)).save(file)
    more = {"task": "segmentation", "metric": "image-iou", "model_options": {"width": 4}}
    run = trained(tmp_path, data=tmp_path / "data", **more)
    values = json.loads((run / "model.json").read_text())
    values["decision"] = {"rule": "jaccard_mask", "numbers": [0.25]}
    (run / "model.json").write_bytes(sealed(values))
    out = tmp_path / "model.pt2"
    result = export(ExportOptions(run=run, out=out, size=(16.0, 16.0)))
    assert "threshold 0.25" in result.note
    assert "jaccard_mask" in result.note
    inputs = torch.rand(3, 1, 16, 16)
    labels, _ = torch.export.load(out).module()(inputs)
    with torch.no_grad():
        scores = saved.read(run)[1](inputs)
    assert torch.equal(labels, (scores[:, 0] > 0.25).long())


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("segmentation", None, "Pass --size HEIGHT,WIDTH if the model takes images"),
        ("segmentation", (8.0,), "--size must be two numbers of pixels"),
        ("ranking", (8.0, 8.0), "Pass --size HEIGHT,WIDTH if the model takes images"),
    ],
)
def test_wrong_sizes_are_told(runs, tmp_path, task, given, message):
    with pytest.raises(UserError, match=message):
        export(ExportOptions(run=runs[task][0], out=tmp_path / "model.pt2", size=given))
    assert not (tmp_path / "model.pt2").exists()


def test_a_run_without_a_model_is_told(tmp_path, capsys):
    (tmp_path / "model.json").write_text(json.dumps({}))
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "m.pt2")]) == 2
    assert "must have the fields" in capsys.readouterr().err
