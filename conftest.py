"""What examples in docstrings may use without making it: `torch`, and those of the lab `folder`."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _torch(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _folder(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """For the commands of the lab: a folder with a table, a run, a task and its candidates."""
    if "evalgrad_lab.commands" in request.node.nodeid:
        folder = request.getfixturevalue("lab_folder")
        doctest_namespace["folder"] = folder
        from evalgrad_lab import tasks

        request.getfixturevalue("monkeypatch").setitem(tasks.TASKS, "tiny", _tiny())


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`rows.csv`, `run` that was trained on it, and `hyperparameters.json` of the task `tiny`."""
    from evalgrad_lab import TrainOptions, train

    folder = tmp_path_factory.mktemp("lab")
    rows = (f"{i % 7},{i * i % 11},{int(i % 7 > 4)}" for i in range(60))
    (folder / "rows.csv").write_text("\n".join(["a,b,target", *rows]))
    quick = {"data": folder / "rows.csv", "loss": "bce", "epochs": 2}
    train(TrainOptions(task="ranking", metric="ap", out=folder / "run", **quick))
    losses = {one.name: {"hyper": next(one.candidates())} for one in _tiny().methods}
    (folder / "hyperparameters.json").write_text(json.dumps({"tiny": {"losses": losses}}))
    return folder


def _tiny() -> Any:
    """A task of three iterations."""
    from evalgrad_lab import tasks
    from evalgrad_lab.data.dataset import Sizes
    from evalgrad_lab.data.embedded.points import two_modes

    data = partial(two_modes, sizes=Sizes(60, 60, 60))
    few = {"name": "tiny", "data": data, "iterations": (3,), "seeds": 2}
    return dataclasses.replace(tasks.find("two-mode-f1"), **few)
