"""benchmarks/gpu.py without a GPU: what it compares, and what it writes down."""

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gpu

COVERED = ("lovasz_softmax", "lovasz_hinge", "LossMaxPooling", "smooth_topk", "ndcg", "FBeta")


def test_goes_through_the_motions_on_a_cpu(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "results" / "gpu.json")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--sizes", "small"])
    assert gpu.main() == 0
    rows = json.loads(gpu.RESULTS.read_text())["rows"]
    assert all(row["right"] and row["fell back"] == [] for row in rows)
    names = {row["loss"] for row in rows}
    for part in (*COVERED, "direct_average_precision", "cross-entropy"):
        assert any(part in name for name in names), part
    said = capsys.readouterr().out
    assert "MONAI DiceLoss" in names or "MONAI is left out" in said
    assert "smp LovaszLoss" in names or "segmentation_models_pytorch is left out" in said


def test_a_wrong_loss_is_not_right():
    def wrong(x, target):
        return x.square().sum() * (2 if x.dtype == torch.float32 else 1)

    assert not gpu.compared(wrong, torch.ones(3), torch.ones(3), "cpu")["right"]


def test_a_kernel_that_fell_back_is_written_down():
    said = "evalgrad: the Triton kernel smooth_topk is not used on cuda:0"

    def loss(x, target):
        if x.dtype == torch.float32:
            warnings.warn(said, RuntimeWarning, stacklevel=1)
        return x.square().sum()

    assert gpu.compared(loss, torch.ones(3), torch.ones(3), "cpu")["fell back"] == [said]


def test_without_a_gpu_it_says_what_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert gpu.main() == 1
    assert "--device cpu" in capsys.readouterr().out
