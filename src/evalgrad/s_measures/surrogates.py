"""Stand-ins for the 0-1 error, from which every count of an S-measure is bounded: three convex ones
and a bounded one.

A surrogate l is a function of the shortfall z = 1 - y f of the margin (y = +1 for positives, -1 for
negatives), with l(z) >= 1[z >= 1], that is 1 or more where the decision is wrong. Hence true
positives >= sum over positives of 1 - l and false positives <= sum over negatives of l, whatever
the scores: the certificates of `diagnostics()` rest on nothing else (remark 3 of the paper names
the choices).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

SurrogateName = Literal["hinge", "square", "cross_entropy", "margin"]


@dataclass(frozen=True)
class Surrogate:
    """A function of the shortfall, differentiable by autograd, with its slope written out for the
    gradient of the batch.
    """

    code: int  # its number in csrc/s_measures/rows.h
    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    piecewise_linear: bool

    def __call__(self, shortfall: Tensor) -> Tensor:
        return self.value(shortfall)


def _positive_part(z: Tensor) -> Tensor:
    return z.relu()


def _is_positive(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _square(z: Tensor) -> Tensor:
    return z.square()


def _twice(z: Tensor) -> Tensor:
    return 2 * z


def _logistic(z: Tensor) -> Tensor:
    return F.softplus(z - 1) / math.log(2)


def _sigmoid(z: Tensor) -> Tensor:
    return (z - 1).sigmoid() / math.log(2)


def _clipped(z: Tensor) -> Tensor:
    return z.clamp(0, 1)


def _is_between(z: Tensor) -> Tensor:
    return ((z > 0) & (z < 1)).to(z.dtype)


SURROGATES: dict[SurrogateName, Surrogate] = {
    # max(0, z): piecewise linear, the paper's choice; its problem in a linear scorer is a linear
    # program.
    "hinge": Surrogate(0, _positive_part, _is_positive, piecewise_linear=True),
    # z^2: smooth, and also pulls scores beyond the margin back to it.
    "square": Surrogate(1, _square, _twice, piecewise_linear=False),
    # log2(1 + exp(z - 1)): the logistic loss in bits, so that it is 1 on the decision boundary.
    "cross_entropy": Surrogate(2, _logistic, _sigmoid, piecewise_linear=False),
    # min(1, max(0, z)): the bounded margin loss. Tightest certificate, but flat for items on the
    # wrong side.
    "margin": Surrogate(3, _clipped, _is_between, piecewise_linear=True),
}
