"""Appendix C: descent on a piecewise linear surface, and a last layer under the Lovász hinge."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batch, in_memory
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import strokes
from evalgrad_lab.fit import Every, Pace, Phase, Training, fit
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.unet import UNet
from reproductions.training import Counts, adam_poly, seeded, train

MOMENTUM, BATCH = 0.9, 16
METHODS = ("SGD", "momentum", "prox", "prox + momentum")


def surface(point: Tensor, nu: float) -> float:
    """Equation C.4: max(0, nu x, y)."""
    return max(0.0, nu * float(point[0]), float(point[1]))


def prox_of_surface(point: Tensor, nu: float, step: float) -> Tensor:
    """Minimiser of f(u) + |u - x|^2 / (2 step).

    f is the support function of the triangle (0, 0), (nu, 0), (0, 1), so x - u is step times the
    projection of x / step on it.
    """
    return point - step * _project_on_triangle(point / step, nu)


def _project_on_triangle(point: Tensor, nu: float) -> Tensor:
    inside = point.clamp(min=0)
    if inside[0] / nu + inside[1] <= 1:
        return inside
    start, edge = point.new_tensor([nu, 0.0]), point.new_tensor([-nu, 1.0])
    return start + edge * ((point - start) @ edge / (edge @ edge)).clamp(0, 1)


def descend(
    *, method: str, nu: float, step: float, iterations: int, start: list[float]
) -> list[list[float]]:
    """A piece: the path of a method on C.4 (momentum as in C.2, C.3): points x, y and the value."""
    point, velocity = torch.tensor(start, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    path = [[*point.tolist(), surface(point, nu)]]
    for _ in range(iterations):
        if method == "prox":
            point = prox_of_surface(point, nu, step)
        else:
            pieces = point.new_tensor([[0.0, 0.0], [nu, 0.0], [0.0, 1.0]])
            gradient = pieces[int((pieces @ point).argmax())]
            velocity = (MOMENTUM if method == "momentum" else 0.0) * velocity + gradient
            point = point - step * velocity
        path.append([*point.tolist(), surface(point, nu)])
    return path


def last_layer(
    *,
    seed: int,
    sizes: Counts,
    base_iterations: int,
    iterations: int,
    every: int,
    start: str,
    settings: list[list[Any]],
) -> list[list[list[float]]]:
    """A piece: the last layer of a U-Net trained under the Lovász hinge, all else as cross-entropy
    left it.

    It starts at "zero" or at the weights of "cross-entropy". For every setting (method, learning
    rate, lam) the curve of (iteration, Lovász hinge on validation).
    """
    split = strokes(seed, Sizes(*sizes))
    network = seeded(seed, lambda: UNet(1, 1))
    model, batches = nn.Sequential(network, nn.Flatten(1, 2)), in_memory(split.train, BATCH, seed)
    train(model, make("bce", {}), batches, adam_poly(0.01, seed=seed), base_iterations)
    parts = (split.train, split.validation)
    seen, new = (Part(features(network, part.inputs), part.target) for part in parts)
    head = nn.Sequential(network.head, nn.Flatten(1, 2))
    if start == "zero":
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
    how = (iterations, every, seed)
    return [fit_head(copy.deepcopy(head), seen, new, *how, *setting) for setting in settings]


@torch.no_grad()
def features(network: UNet, images: Tensor) -> Tensor:
    """What the last layer is given."""
    found: list[Tensor] = []
    handle = network.head.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    network(images)
    handle.remove()
    return found[0]


def fit_head(
    head: nn.Module,
    part: Part,
    validation: Part,
    iterations: int,
    every: int,
    seed: int,
    method: str,
    learning_rate: float,
    lam: float,
) -> list[list[float]]:
    """Minimise the Lovász hinge over the head; steps fall as 1 / sqrt(t), lam rises with them."""

    @torch.no_grad()
    def look(step: int) -> None:
        value = eg.lovasz_hinge_loss(head(validation.inputs), validation.target)
        curve.append([step, float(value)])

    def loss(scores: Tensor, batch: Batch) -> Tensor:
        rising = lam * (1 + training.step) ** 0.5
        return eg.lovasz_hinge_loss(scores, batch.target, gradient=gradient, lam=rising)

    curve: list[list[float]] = []
    gradient: Literal["prox", "subgradient"] = "prox" if "prox" in method else "subgradient"
    momentum = MOMENTUM if "momentum" in method else 0.0
    sgd: Any = {"optimiser": "sgd", "schedule": lambda part: (1 + part * iterations) ** -0.5}
    pace = Pace(learning_rate, momentum=momentum, seed=seed, **sgd)
    training = Training(head, [Phase(loss, iterations)], pace)
    look(0)
    fit(training, in_memory(part, BATCH, seed), [Every(every, look)])
    return curve
