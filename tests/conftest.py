"""Shared set-up: every module and test is seeded, and may ask for the pure-torch path."""

import pytest
import torch
from hypothesis import HealthCheck, settings

from evalgrad import _native

settings.register_profile(
    "evalgrad",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("few", settings.get_profile("evalgrad"), max_examples=3)  # make matrix
settings.load_profile("evalgrad")


def pytest_collectstart(collector):
    """Tensors that a module draws when it is imported are the same whatever was collected before
    it.
    """
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def pure(monkeypatch):
    """Run without the C++ kernels, as a build without a compiler does."""
    monkeypatch.setattr(_native, "library", None)


@pytest.fixture(params=["kernel", "pure"])
def engine(request):
    """Run on both paths. Without state of its own, so that the examples of a Hypothesis test may
    share it.
    """
    library = _native.library
    if request.param == "pure":
        _native.library = None
    elif library is None:
        pytest.skip("built without kernels")
    yield request.param
    _native.library = library
