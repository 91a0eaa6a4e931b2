"""Items, options and runs for the tests of `--loss auto`."""

import numpy as np
import torch
from safetensors.torch import load_file

from evalgrad_lab.commands.train import TrainOptions


def write_items(path, count=400, positives=0.4, seed=0):
    """Rows of numbers; a share of them, those with the largest noisy sums, are positive."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3)).astype(np.float32)
    scores = x.sum(1) + generator.normal(size=count)
    target = (scores > np.quantile(scores, 1 - positives)).astype(int)
    np.savez(path, inputs=x, target=target)
    return path


def options(tmp_path, **given):
    data = given.pop("data", None) or write_items(tmp_path / "items.npz")
    known = {"task": "ranking", "metric": "ap", "out": tmp_path / "run", "accelerator": "cpu"}
    quick = {"epochs": 4, "batch_size": 64, "learning_rate": 0.01}
    return TrainOptions(data=data, **{**known, **quick, **given})


def weights(out):
    return load_file(out / "best.safetensors")


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)
