"""Train a classifier on an arbitrary cost matrix: `evalgrad.direct_loss` with the user's own task
loss and inference.

Three overlapping classes; taking class 0 for class 2 costs ten times what other mistakes cost.
Cross-entropy knows nothing of that. Direct loss minimisation needs the score of a class, its cost,
and two argmaxes. Run it: `python docs/examples/cost_matrix.py`.
"""

import torch
from torch import Tensor

from evalgrad import direct_loss

# COST[true class, predicted class]
COST = torch.tensor([[0.0, 1.0, 10.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])


def cost_matrix_loss(
    logits: Tensor, target: Tensor, cost: Tensor, *, epsilon: float, direction: str = "positive"
) -> Tensor:
    """Cost of the predicted class of every sample, (N,), with the direct loss gradient."""
    costs = cost[target]  # (N, C): what each answer would cost
    return direct_loss(
        score=lambda y: logits.gather(1, y[:, None])[:, 0],
        task_loss=lambda y: costs.gather(1, y[:, None])[:, 0],
        predict=lambda: logits.argmax(1),
        augment=lambda weight: (logits + weight * costs).argmax(1),
        epsilon=epsilon,
        direction=direction,
    )


def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of three Gaussians of width 1 at the corners of a small triangle."""
    centers = torch.tensor([[0.0, 1.0], [-1.0, -0.5], [1.0, -0.5]])
    target = torch.randint(3, (n,), generator=generator)
    return centers[target] + torch.randn(n, 2, generator=generator), target


def train(
    x: Tensor, target: Tensor, *, direct: bool, start: torch.nn.Linear | None = None
) -> torch.nn.Linear:
    """A linear classifier by cross-entropy, or, from `start` on, by the direct loss."""
    model = torch.nn.Linear(2, 3)
    (
        torch.nn.init.zeros_(model.weight)
        if start is None
        else model.load_state_dict(start.state_dict())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 if direct else 0.5)
    for _ in range(300):
        optimizer.zero_grad()
        logits = model(x)
        loss = (
            cost_matrix_loss(logits, target, COST, epsilon=0.1).mean()
            if direct
            else torch.nn.functional.cross_entropy(logits, target)
        )
        loss.backward()
        optimizer.step()
    return model


def mean_cost(model: torch.nn.Linear, x: Tensor, target: Tensor) -> float:
    return COST[target, model(x).argmax(1)].mean().item()


def main() -> tuple[float, float]:
    """Mean cost on new points after cross-entropy, and after direct loss minimisation from
    there.
    """
    generator = torch.Generator().manual_seed(0)
    x, target = draw(2000, generator)
    test_x, test_target = draw(20_000, generator)
    baseline = train(x, target, direct=False)
    tuned = train(x, target, direct=True, start=baseline)
    before, after = mean_cost(baseline, test_x, test_target), mean_cost(tuned, test_x, test_target)
    print(f"mean cost on new points: cross-entropy {before:.3f}, direct loss {after:.3f}")
    return before, after


if __name__ == "__main__":
    main()
