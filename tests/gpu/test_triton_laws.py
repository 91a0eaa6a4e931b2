"""The laws of the losses that Triton kernels serve, by these kernels, on the interpreter."""

import pytest
from cases import CASES
from device_laws import LAWS
from sanitizer import Trace

SERVED = {
    "lovasz_softmax",
    "lovasz_softmax_dice",
    "lovasz_softmax_tversky",
    "lovasz_hinge",
    "lovasz_hinge_dice",
    "lovasz_hinge_multilabel",
    "loss_max_pooling",
    "smooth_topk",
    "direct_average_precision",
    "direct_average_precision_negative",
    "direct_ndcg",
}
BY_NAME = {str(case): case for case in CASES}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", sorted(SERVED))
def test_law(name, law):
    with Trace() as trace:
        law(BY_NAME[name], "cpu", 0)
    assert sum(trace.launches.values()) > 0
    assert trace.clean, trace


def wrong(case):
    """Twice the loss."""
    return case.__class__(**{**case.__dict__, "loss": lambda *a, **o: 2 * case.loss(*a, **o)})


@pytest.mark.parametrize("name", ["loss_max_pooling", "direct_average_precision_negative"])
def test_a_wrong_loss_breaks_a_law(name):
    with Trace(), pytest.raises(AssertionError):
        LAWS[0](wrong(BY_NAME[name]), "cpu", 0)
