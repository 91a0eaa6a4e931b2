"""How long the way of a loss is: a reader should not walk through many rooms."""

import ast
import sys
from pathlib import Path

import pytest
import torch

import evalgrad as eg
from evalgrad import _native

LIBRARY = Path(eg.__file__).parent


@pytest.mark.skipif(_native.library is None, reason="the pure path visits the core's files too")
def test_lovasz_softmax_takes_few_calls_through_few_files():
    loss = eg.LovaszSoftmaxLoss(ignore_index=255)
    x, target = torch.randn(2, 5, 8, 8, requires_grad=True), torch.randint(5, (2, 8, 8))
    calls = []

    def note(frame, event, _):
        if event == "call" and "/evalgrad/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        loss(x, target).backward()
    finally:
        sys.setprofile(None)
    assert len(calls) <= 24  # forward and backward; it was 49
    assert len(set(calls)) <= 6


def bodies(path):
    """Names and lines of the bodies of the functions of a file, without docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, node.end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    """All of the library, so those on the way above too; the steps of a Triton kernel share their
    values.
    """
    files = [path for path in LIBRARY.rglob("*.py") if path.parent.name != "_triton"]
    found = [(n, name, path.name) for path in files for name, n in bodies(path)]
    assert any(name == "lovasz_softmax_loss" for _, name, _ in found)
    assert max(found) < (31,), "longer than 30 lines"
