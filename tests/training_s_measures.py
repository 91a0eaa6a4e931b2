"""Training of a linear scorer on a measure, for the benchmark and the tests: full batch or
minibatches, either solver.
"""

import numpy as np
import torch
from torch import nn

from evalgrad import FBeta


def linear_problem(
    seed: int, items: int = 240, features: int = 5, positives: float = 0.25, separation: float = 1.5
):
    """Two Gaussians and a bias column; (x, y) as numpy."""
    draw = np.random.default_rng(seed)
    y = draw.random(items) < positives
    x = draw.normal(size=(items, features))
    x[y] += separation * 1.5 * draw.normal(size=features) / np.sqrt(features)
    return np.hstack([x, np.ones((items, 1))]), y


def train(
    measure: nn.Module,
    x: np.ndarray,
    y: np.ndarray,
    *,
    steps: int,
    batches: int = 1,
    lr: float = 0.2,
    primal_lr: float = 0.1,
) -> torch.Tensor:
    """Adam on the weights, plain SGD on the measure's own variables, their rates falling linearly
    to zero.

    The multipliers move once per pass. Their rate falls in the last tenth only: they must not
    freeze before the rest has settled.
    """
    torch.manual_seed(0)
    features, target = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    weight = torch.zeros(features.shape[1], requires_grad=True)
    optimisers = [torch.optim.Adam([weight], lr=lr)]
    own = measure.primal_groups(primal_lr)
    if own:
        optimisers.append(torch.optim.SGD(own, lr=primal_lr))
    decay = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1 - t / (steps + 1)) for o in optimisers
    ]
    lagrangian = any(p.endswith("tau") for p, _ in measure.named_parameters())
    done, size = 0, len(x) // batches
    while done < steps:
        for index in torch.randperm(len(x))[: size * batches].split(size):
            for o in optimisers:
                o.zero_grad()
            measure(features[index] @ weight, target[index], index=index).backward()
            for o in optimisers:
                o.step()
            measure.project_()
            if lagrangian and done % batches == batches - 1:
                measure.dual_step(measure.dual_lr * min(1, 10 * (1 - done / (steps + 1))))
            for d in decay:
                d.step()
            done += 1
    with torch.no_grad():  # the final scores of all items
        index = torch.arange(len(x))
        for group in measure.groups:
            group.counts.store(features @ weight, target, index)
    return weight.detach()


def projection_counts(
    x: np.ndarray, y: np.ndarray, *, epochs: int, batches: int, primal_lr: float = 0.1
) -> dict[str, dict[str, float]]:
    """The comparison of the paper's figure 3: projections spent and F1 certified, at every step and
    once per epoch.
    """
    result = {}
    for name, every in (("every step", 1), ("once per epoch", batches)):
        reg = FBeta(labels=torch.tensor(y), solver="lagrangian", project_every=every)
        train(reg, x, y, steps=epochs * batches, batches=batches, primal_lr=primal_lr)
        report = reg.diagnostics()
        result[name] = {key: report[key] for key in ("projections", "certificate", "metric")}
    return result
