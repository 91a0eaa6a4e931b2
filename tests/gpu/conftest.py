"""Tests of the GPU kernels. `make test-triton` runs them in processes of their own, because Triton
reads TRITON_INTERPRET when it is imported: with 1 on its interpreter, with 0 through its compiler.
Without the variable they are not collected.
"""

import os

import numpy as np
import pytest
import torch

collect_ignore_glob = {
    "1": ["test_triton_compiled.py"],
    "0": ["test_triton_[!c]*.py"],
}.get(os.environ.get("TRITON_INTERPRET", ""), ["*"])


@pytest.fixture(autouse=True)
def _uninitialised_memory_is_nan():
    """So that a place shows that a kernel reads before, or never, writes."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    """The interpreter computes with numpy, which warns of what a GPU just does: 0/0, overflow."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(autouse=True)
def _quick_interpreter():
    if os.environ["TRITON_INTERPRET"] == "0":
        yield
        return
    from sanitizer import quick_interpreter

    with quick_interpreter():
        yield
