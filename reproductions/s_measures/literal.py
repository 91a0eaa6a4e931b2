"""The paper's algorithm to the letter: what the library corrects, so that what is said of it can be
shown.
"""

import torch
from torch import Tensor, nn

import evalgrad as eg

# Section 4: Adam with this step for the network, tau and epsilon, and these for the multipliers.
PRIMAL_STEP, LAMBDA_STEP, MU_STEP = 1e-2, 1e-3, 1e-5


class LiteralF1(nn.Module):
    """Equation (4), n eps + sum_- max(0, eps + f_i) + mu (sum_+ tau_i - 1) + sum_+ lambda_i (tau_i
    - f_i), of a batch as if it were the data, in the paper's own variables: sums, and s = f.
    """

    lam: Tensor
    mu: Tensor

    def __init__(self, labels: Tensor) -> None:
        super().__init__()
        positive = labels == 1
        found = int(positive.sum())
        self.tau = nn.Parameter(torch.full((found,), 1 / found))
        self.epsilon = nn.Parameter(torch.tensor(1 / found))
        for name, value in (("lam", torch.zeros(found)), ("mu", torch.zeros(()))):
            self.register_buffer(name, value)
        self.register_buffer("slot", positive.cumsum(0).sub(1).clamp_min(0))
        self.register_buffer("scores", torch.zeros(found))  # the last of every positive

    def forward(self, scores: Tensor, target: Tensor, *, index: Tensor) -> Tensor:
        hit = target == 1
        slot, f = self.get_buffer("slot")[index[hit]], scores[hit]
        self.get_buffer("scores")[slot] = f.detach()
        alarms = (self.epsilon + scores[~hit]).relu().sum()
        gap = (self.lam[slot] * (self.tau[slot] - f)).sum()
        return len(slot) * self.epsilon + alarms + self.mu * (self.tau[slot].sum() - 1) + gap

    @torch.no_grad()
    def project_(self) -> None:
        """The projection itself; what algorithms 2 and 4 print of it is in the tests."""
        tau, epsilon = eg.project_onto_ceiling(self.tau, self.epsilon)
        self.tau.copy_(tau)
        self.epsilon.copy_(epsilon)

    @torch.no_grad()
    def ascend(self, lam: float, mu: float, *, epoch: int = 1) -> None:
        """The last two lines of algorithm 1, by steps of lambda and mu; lambda is not kept from
        falling below 0. Section 4 has constant steps, algorithm 1 c / e in epoch e = 1, 2, ...
        """
        self.lam += lam / epoch * (self.tau - self.get_buffer("scores"))
        self.mu += mu / epoch * (self.tau.sum() - 1)


def rule_for_two(tau: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """Section 3.2 for B = 2, where a step moved one tau: epsilon < 0 becomes 0 and leaves tau as it
    is, else the two meet in the middle if tau is the larger.
    """
    middle = (tau + epsilon) / 2
    above = (epsilon >= 0) & (tau > epsilon)
    return torch.where(above, middle, tau), torch.where(above, middle, epsilon.clamp_min(0))


def sketched_projection(
    tau: Tensor,
    epsilon: Tensor,
    *,
    sample: int,
    rho: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Section 7.5: the threshold of a sample of tau, drawn without replacement, for all of it. Each
    value that was drawn stands for len(tau) / sample of them, which the section leaves out.
    """
    drawn = tau[torch.randperm(len(tau), generator=generator)[:sample]]
    _, level = eg.project_onto_ceiling(drawn, epsilon, rho=rho * len(tau) / len(drawn))
    return tau.minimum(level), level


def soft_projection(
    tau: Tensor, epsilon: Tensor, *, temperature: float, transport: float = 0.3, rounds: int = 200
) -> tuple[Tensor, Tensor]:
    """Section 7.6 with equation (18) corrected: tau sorted by Sinkhorn, then smoothed comparisons.

    a_k = [u_k > c_{k-1}], c_k = (epsilon + u_1 + ... + u_k) / (k + 1), and the ceiling is (epsilon
    + sum a_k u_k) / (1 + sum a_k). `temperature` smooths the comparisons, `transport` the sort; a
    lower one there is closer but needs more rounds.
    """
    u = sinkhorn_sort(tau, temperature=transport, rounds=rounds)
    sums = torch.cat([epsilon.unsqueeze(0), u]).cumsum(0)
    means = sums / torch.arange(1, len(sums) + 1, dtype=u.dtype)
    a = ((u - means[:-1]) / temperature).sigmoid()
    level = ((epsilon + (a * u).sum()) / (1 + a.sum())).clamp_min(0)
    return torch.minimum(tau, level), level


def sinkhorn_sort(x: Tensor, *, temperature: float, rounds: int) -> Tensor:
    """The values in descending order, by entropic transport to evenly spaced places."""
    places = torch.linspace(1, 0, len(x), dtype=x.dtype)
    scaled = (x - x.min()) / (x.max() - x.min()).clamp_min(1e-12)
    log = -((places.unsqueeze(1) - scaled.unsqueeze(0)) ** 2) / (temperature / len(x))
    for _ in range(rounds):
        log = log - log.logsumexp(0, keepdim=True)
        log = log - log.logsumexp(1, keepdim=True)
    return log.exp() @ x
