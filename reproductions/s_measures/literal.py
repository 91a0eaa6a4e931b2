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
    def ascend(self, lam: float, mu: float) -> None:
        """The last two lines of algorithm 1, by steps of lambda and mu; lambda is not kept from
        falling below 0.
        """
        self.lam += lam * (self.tau - self.get_buffer("scores"))
        self.mu += mu * (self.tau.sum() - 1)
