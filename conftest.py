"""Examples in docstrings may say `torch` without importing it, as their readers have."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _torch(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
