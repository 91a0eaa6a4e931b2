"""The laws of every loss on every device that torch finds: with a GPU, on it too."""

import pytest
import torch
from cases import CASES
from device_laws import LAWS, devices


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_law(case, law, device):
    for seed in range(3):
        law(case, device, seed)


def test_a_gpu_is_found(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices() == ["cpu", "cuda"]


def test_the_laws_go_to_the_device():
    """On meta tensors, which have no values: a loss is asked there, not at home."""
    seen = []

    def loss(x, target, **_):
        seen.append((x.device.type, target.device.type))
        raise NotImplementedError

    case = next(iter(CASES))
    for law in LAWS:
        with pytest.raises(NotImplementedError):
            law(case.__class__(**{**case.__dict__, "loss": loss}), "meta", 0)
    assert seen == [("meta", "meta")] * len(LAWS)
