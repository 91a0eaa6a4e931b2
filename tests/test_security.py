"""A test for each line of docs/security.md. That reports escape names is in test_lab_report_page.py
and test_lab_run_page.py; the types in model.json, arrays and volumes that expand, damaged weights
and the store are in test_lab_bad_days.py; the arguments of a kernel in test_native.py.
"""

import ast
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from training_data import table, write_segmentation

from evalgrad_lab import models
from evalgrad_lab.cli import main
from evalgrad_lab.data.files.folders import open_image
from evalgrad_lab.errors import UserError
from evalgrad_lab.saved import Description, write

SOURCES = Path(__file__).parents[1] / "src"
CODE = """
import pathlib, torch

pathlib.Path("ran").touch()

class Net(torch.nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
"""


def described(**changes):
    fixed = {
        "task": "ranking",
        "metric": "ap",
        "kind": "ranking",
        "loss": "bce",
        "model": "mlp",
        "model_options": {"widths": [3]},
        "inputs": 3,
        "outputs": 1,
        "classes": ["0", "1"],
        "columns": [],
        "target": "target",
        "group": None,
        "mean": [0.0] * 3,
        "std": [1.0] * 3,
        "bgr": False,
        "views": {},
        "ignore_index": 255,
        "data_options": {},
        "decision": None,
    }
    return Description(**{**fixed, **changes})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with data and a run of a network that is not built in."""
    monkeypatch.chdir(tmp_path)
    x, target, _ = table(20)
    np.savez(tmp_path / "data.npz", inputs=x, target=target)
    (tmp_path / "foreign_net.py").write_text(CODE)
    network = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(3, 1))
    write(tmp_path / "run", described(model="foreign_net:Net", model_options={}), network)
    return tmp_path


PREDICT = ["predict", "run", "--data", "data.npz", "--out", "out"]


def test_the_code_that_a_run_folder_names_runs_only_if_trusted(folder, capsys):
    for command in (
        PREDICT,
        ["evaluate", "run", "--data", "data.npz"],
        ["export", "run", "--out", "model.pt2"],
    ):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "run would run the code of its network, foreign_net:Net." in said
        assert "add --trust-model" in said
        assert not (folder / "ran").exists()
    assert main([*PREDICT, "--trust-model"]) == 0
    assert (folder / "ran").exists()


def test_a_configuration_cannot_name_code(folder):
    config = {"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "image_size": 8}
    config |= {"num_attention_heads": 1, "intermediate_size": 8, "patch_size": 4}
    config["auto_map"] = {"AutoModelForImageClassification": "foreign_net.Net"}
    network = models.build("hugging_face", 3, 2, {"config": config, "task": "classification"})
    assert type(network.model).__module__.startswith("transformers.")
    assert not (folder / "ran").exists()
    made = {"config": {"model_type": "nobody_has_it"}, "task": "classification"}
    with pytest.raises(UserError, match="must take"):
        models.build("hugging_face", 3, 2, made)


class Runs:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


def test_pickles_do_not_run(folder, capsys):
    torch.save({"network": Runs()}, folder / "bad.ckpt")
    np.savez(folder / "bad.npz", inputs=np.array([Runs()] * 4), target=np.zeros(4, int))
    with open(folder / "raw.ckpt", "wb") as file:
        pickle.dump({"network": Runs()}, file)
    fixed = ["train", "--task", "ranking", "--metric", "ap", "--out", "new", "--accelerator", "cpu"]
    for more in (
        ["--data", "data.npz", "--resume", "bad.ckpt"],
        ["--data", "data.npz", "--resume", "raw.ckpt"],
        ["--data", "data.npz", "--weights", "bad.ckpt"],
        ["--data", "bad.npz"],
    ):
        assert main([*fixed, *more]) == 2
        said = capsys.readouterr().err
        assert "cannot be read" in said or "is not a file of plain tensors" in said
        assert not (folder / "ran").exists()


def _runs_text(call):
    """Whether a call runs or unpickles what a text or a file says."""
    name = ast.unparse(call.func)
    weights = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    loads = name == "torch.load" and weights.get("weights_only") != "True"
    pickled = name in ("np.load", "numpy.load") and weights.get("allow_pickle") != "False"
    runs = name in ("eval", "exec", "compile", "__import__") or name.startswith("pickle.")
    return loads or pickled or runs


def test_no_source_runs_what_a_file_says():
    trees = (ast.parse(file.read_text()) for file in sorted(SOURCES.rglob("*.py")))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    assert len(calls) > 1000
    assert [ast.unparse(call) for call in calls if _runs_text(call)] == []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {name.partition(".")[0] for name in names}
    assert not modules & {"pickle", "yaml", "marshal", "shelve", "dill", "joblib"}


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("eval(text)", True),
        ("network.eval()", False),
        ("exec(text)", True),
        ("pickle.load(file)", True),
        ("torch.load(file)", True),
        ("torch.load(file, weights_only=False)", True),
        ("torch.load(file, weights_only=True)", False),
        ("np.load(file)", True),
        ("np.load(file, allow_pickle=False)", False),
        ("re.compile(text)", False),
    ],
)
def test_what_runs_text_is_found(line, runs):
    assert _runs_text(ast.parse(line).body[0].value) == runs


def test_an_image_larger_than_it_looks(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(UserError, match=r"large.png cannot be read as an image \(Image size"):
        open_image(tmp_path / "large.png")


def test_a_network_larger_than_its_weights(folder, capsys):
    network = torch.nn.Sequential(torch.nn.Identity(), models.build("mlp", 3, 1, {"widths": [3]}))
    write(folder / "run", described(model_options={"widths": [10**9, 10**9]}), network)
    assert main(PREDICT) == 2  # a billion times a billion weights: at once
    assert "is a checkpoint of another model" in capsys.readouterr().err


def test_names_leave_no_folder(folder, tmp_path):
    data = write_segmentation(tmp_path / "data", count=1)
    strange = data / "images" / "..%2f..\\x.png"
    shutil.move(data / "images" / "00.png", strange)
    network = models.build("unet", 1, 2, {"width": 2})
    known = described(
        task="segmentation",
        kind="segmentation",
        metric="miou",
        model="unet",
        model_options={"width": 2},
        inputs=1,
        outputs=2,
        classes=["../../a", "/b"],
        mean=[0.0],
        std=[1.0],
        decision={"rule": "argmax", "numbers": []},
    )
    write(folder / "run", known, torch.nn.Sequential(torch.nn.Identity(), network))
    before = set(tmp_path.rglob("*"))
    assert main(["predict", "run", "--data", str(data), "--out", "out"]) == 0
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "out", tmp_path / "out" / strange.name}
