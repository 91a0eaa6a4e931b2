"""Elementary symmetric polynomials in log-space, differentiable: the sums over all j-subsets that
smooth top-k is made of.
"""

import torch.nn.functional as F
from torch import Tensor

from evalgrad._inputs import WORKING, floating
from evalgrad._options import integer
from evalgrad.smooth_topk.expansion import expand


def log_elementary_symmetric(x: Tensor, *, k: int) -> Tensor:
    """log sigma_0 .. log sigma_k of exp(x) over the last dimension.

    sigma_j is the sum over all j-subsets of the product of exp(x). The logarithms never overflow,
    and their derivatives, the probabilities that an item is in a random j-subset drawn in
    proportion to its product, are exact; the second derivative exists too. Entry j does not depend
    on k up to rounding: a shorter call returns a prefix of a longer one.

    Args:
        x: ``(*, n)``; -inf for an item that is absent.
        k: the largest degree, 1 to n.

    Returns:
        ``(*, k + 1)``, of the dtype of `x`.

    Example:
        >>> import torch
        >>> x = torch.tensor([1.0, 2.0, 3.0]).log()
        >>> log_elementary_symmetric(x, k=3).exp()  # 1, 1+2+3, 1*2+1*3+2*3, 1*2*3
        tensor([ 1.0000,  6.0000, 11.0000,  6.0000])
    """
    function = "log_elementary_symmetric"
    x = floating(function, "x", x)
    repair = f"There are only {x.shape[-1]} items in the last dimension."
    integer(1, x.shape[-1], repair=repair)(function, "k", k)
    rows = x.reshape(x.shape[:-1].numel(), x.shape[-1]).to(WORKING[x.dtype])
    rest = expand(rows, k, 1.0, marginals=0)
    largest = F.pad(rest.top[:, :k].to(rest.log_s.dtype).cumsum(-1), (1, 0))  # x_[1] + .. + x_[j]
    return (largest + rest.log_s).to(x.dtype).reshape(*x.shape[:-1], k + 1)
