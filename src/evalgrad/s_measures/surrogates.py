"""Stand-ins for the 0-1 error, from which every count of an S-measure is bounded: three convex ones and a bounded one.

A surrogate l is a function of the shortfall z = 1 - y f of the margin (y = +1 for positives, -1 for negatives), with
l(z) >= 1[z >= 1], that is 1 or more where the decision is wrong. Hence true positives >= sum over positives of 1 - l and
false positives <= sum over negatives of l, whatever the scores: the certificates of `diagnostics()` rest on nothing else
(remark 3 of the paper names the choices).
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Surrogate = Callable[[Tensor], Tensor]


def hinge(shortfall: Tensor) -> Tensor:
    """max(0, z): piecewise linear, the paper's choice; its problem in a linear scorer is a linear program."""
    return shortfall.relu()


def square(shortfall: Tensor) -> Tensor:
    """z^2: smooth, and also pulls scores beyond the margin back to it."""
    return shortfall.square()


def cross_entropy(shortfall: Tensor) -> Tensor:
    """log2(1 + exp(z - 1)): the logistic loss in bits, so that it is 1 on the decision boundary."""
    return F.softplus(shortfall - 1) / math.log(2)


def margin(shortfall: Tensor) -> Tensor:
    """min(1, max(0, z)): the bounded margin loss. Tightest certificate, but flat for items on the wrong side."""
    return shortfall.clamp(0, 1)


SURROGATES: dict[str, Surrogate] = {
    "hinge": hinge,
    "square": square,
    "cross_entropy": cross_entropy,
    "margin": margin,
}
