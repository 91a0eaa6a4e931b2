"""How long the way of a loss is: a reader should not walk through many rooms."""

import sys

import pytest
import torch

import evalgrad as eg
from evalgrad import _native


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
