"""Algorithm C.1 of the Lovász paper, as printed and repaired: what the library's exact proximal
point is compared with. For errors above 0, where the hinge is the extension itself.
"""

import torch
from torch import Tensor

import evalgrad as eg

# As printed it goes along +g, which ascends, and line 12 compares a number of steps of length |g|
# with a distance. Repaired: along -g, both in steps.


def gains(foreground: Tensor) -> Tensor:
    """The gradient of the extension for errors in this order: what each item adds to the loss."""
    front, back = foreground.double().cumsum(0), (~foreground).double().cumsum(0)
    loss = (front + back) / (foreground.sum() + back)
    return torch.diff(loss, prepend=loss.new_zeros(1))


def objective(u: Tensor, x: Tensor, foreground: Tensor, lam: float) -> float:
    """Definition C.1: the extension at u plus lam / 2 |u - x|^2."""
    order = u.argsort(descending=True)
    value = u[order] @ gains(foreground[order]) + lam / 2 * (u - x).square().sum()
    return float(value)


def greedy_prox(x: Tensor, foreground: Tensor, lam: float, repaired: bool) -> Tensor:
    """Lines 1 to 20: walk along the gradient, which is averaged over items of equal error, from
    edge to edge; two runs of items that have met stay together.
    """
    order = x.argsort(descending=True)
    start, raw = x[order], gains(foreground[order])
    v, runs = start.clone(), [[i] for i in range(len(x))]
    while True:
        g = torch.cat([raw[run].mean().expand(len(run)) for run in runs])
        way = -g if repaired else g
        first = [run[0] for run in runs]
        gap, closing = -v[first].diff(), way[first].diff()  # of neighbouring runs
        times = torch.where(closing > 1e-12, gap / closing, torch.inf)
        edge = float(times.min()) if len(times) else torch.inf
        stop = float(1 / lam + (v - start) @ g / (g @ g))
        if stop < edge * (1.0 if repaired else float(g.norm())):
            v = v + stop * way
            break
        v, at = v + edge * way, int(times.argmin())
        runs[at : at + 2] = [runs[at] + runs[at + 1]]
        v[runs[at]] = v[runs[at]].mean()
    return torch.empty_like(v).index_copy_(0, order, v)


def greedy_counts(*, draws: int, items: int) -> dict[str, int]:
    """A piece: of random sets of errors, on how many the printed algorithm ends above its start,
    and on how many the repaired one ends above the exact minimum.
    """
    generator, found = torch.Generator().manual_seed(0), {"ascends": 0, "misses": 0}
    for _ in range(draws):
        x = 5 + torch.rand(items, generator=generator, dtype=torch.float64)
        foreground = torch.rand(items, generator=generator) < 0.5
        foreground[0] = True
        lam = 10 ** (2 * float(torch.rand((), generator=generator)) - 0.5)
        exact = eg.lovasz_prox(x, foreground, lam=lam)
        printed, repaired = (greedy_prox(x, foreground, lam, how) for how in (False, True))
        worth = [objective(u, x, foreground, lam) for u in (x, exact, printed, repaired)]
        found["ascends"] += worth[2] > worth[0]
        found["misses"] += worth[3] > worth[1] + 1e-9
    return found
