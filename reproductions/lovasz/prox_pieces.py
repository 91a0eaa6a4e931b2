"""Appendix C: descent on a piecewise linear surface."""

import torch
from torch import Tensor

MOMENTUM = 0.9
METHODS = ("SGD", "momentum", "prox")


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
