"""The equalities of docs/coming_from.md: both sides of every row, evaluated."""

import importlib
import re
import types
from pathlib import Path

import pytest
import torch

from benchmarks import references

PAGE = (Path(__file__).parent.parent / "docs/coming_from.md").read_text()
# section -> what is imported there, and its name in the rows
LIBRARIES = {
    "torchmetrics": ("torchmetrics.functional", "tm"),
    "scikit-learn": ("sklearn.metrics", "sk"),
    "pytorch-metric-learning": ("pytorch_metric_learning.utils.accuracy_calculator", "pml"),
    "segmentation_models_pytorch": ("segmentation_models_pytorch", "smp"),
    "MONAI": ("monai", "monai"),
}
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M))
ROWS = [
    (library, *row)
    for library in LIBRARIES
    for row in re.findall(r"^\| `(.*?)` \| `(.*?)` \|$", SECTIONS[library], re.M)
]


@pytest.fixture(scope="module")
def given():
    """The tensors that the page draws."""
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], names)
    return names


def losses_of_smp():
    try:
        return types.SimpleNamespace(losses=references.losses_of_smp())
    except ImportError as error:
        pytest.skip(str(error))


def imported(library, given):
    module, name = LIBRARIES[library]
    if name == "smp":
        return {name: losses_of_smp()}
    pytest.importorskip(module.partition(".")[0])
    found = {name: importlib.import_module(module)}
    if library == "pytorch-metric-learning":
        knn = importlib.import_module("pytorch_metric_learning.utils.inference").CustomKNN
        distance = importlib.import_module("pytorch_metric_learning.distances").LpDistance()
        wanted = re.findall(r'judge\["(.*?)"\]', SECTIONS[library])
        # the search of faiss is not needed for this
        judge = found[name].AccuracyCalculator(include=wanted, knn_func=knn(distance))
        found["judge"] = judge.get_accuracy(given["vectors"], given["names"])
    return found


@pytest.mark.parametrize(("library", "there", "here"), ROWS, ids=[row[1] for row in ROWS])
def test_both_sides_are_equal(library, there, here, given):
    given = {**given, **imported(library, given)}
    theirs, ours = (torch.as_tensor(eval(side, given)) for side in (there, here))
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=1e-5)
    assert ours > 0  # not the 0 of nothing at all


def test_every_library_has_rows():
    assert {library for library, *_ in ROWS} == {*LIBRARIES}
    assert {*LIBRARIES} == {*SECTIONS}
