"""One file trains, one makes a process pool, one tunes: read off the sources of the lab and of the
papers' experiments.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAB = ROOT / "src" / "evalgrad_lab"
SOURCES = sorted([*LAB.rglob("*.py"), *(ROOT / "reproductions").rglob("*.py")])

# The S-measure's own tau and epsilon, which are no network: its solver steps and projects them.
SOLVER = "reproductions/s_measures/regulariser.py"
# What they choose has been trained already: of which alpha a sentence speaks, and which loss a
# report compares with the baseline.
WORDS = {
    "reproductions/s_measures/digits.py",
    "src/evalgrad_lab/report/panels.py",
}


def steps(node):
    """An optimiser that is made or steps, or Lightning's own loop."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "step"
    if isinstance(node, ast.Attribute):
        return ast.unparse(node).startswith("torch.optim.") and node.attr not in ("Optimizer",)
    names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
    return bool({"LightningModule", "Trainer", "torch.optim", "optim"} & set(names))


def pools(node):
    """Anything that starts processes for Python functions."""
    makers = {"ProcessPoolExecutor", "Pool", "spawn", "joblib", "start_processes"}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        named = {alias.name.rpartition(".")[2] for alias in node.names}
        return bool(named & (makers | {"multiprocessing"}))
    return isinstance(node, ast.Attribute) and node.attr in makers


def tunes(node):
    """A choice of the best by what validation says of it."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("max", "min", "sorted"):
        return False
    keys = [ast.unparse(word.value) for word in node.keywords if word.arg == "key"]
    return any("validation" in key for key in keys)


def files_where(found, sources=None):
    trees = sources or {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES
    }
    return {
        name
        for name, text in trees.items()
        if any(found(node) for node in ast.walk(ast.parse(text)))
    }


def test_one_file_trains():
    assert files_where(steps) - {SOLVER} == {"src/evalgrad_lab/fit.py"}


def test_one_file_makes_a_process_pool():
    assert files_where(pools) == {"src/evalgrad_lab/runs.py"}


def test_one_file_tunes():
    assert files_where(tunes) <= WORDS
    defined = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in ("tune", "best_mean")
    }
    assert defined == {"src/evalgrad_lab/tune.py"}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (steps, "optimiser.step()"),
        (steps, "self.optimiser.step(closure)"),
        (steps, "made = torch.optim.SGD(network.parameters())"),
        (steps, "from torch import optim"),
        (steps, "from lightning import Trainer"),
        (pools, "from concurrent.futures import ProcessPoolExecutor"),
        (pools, "import torch.multiprocessing"),
        (pools, "context.Pool(4)"),
        (tunes, "max(runs, key=lambda run: run['validation'])"),
    ],
)
def test_what_is_forbidden_would_be_seen(found, text):
    assert files_where(found, {"other": text}) == {"other"}
    assert not files_where(found, {"other": "step = training.step + 1\nbest = max(scores)"})
