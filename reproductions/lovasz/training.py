"""One training, as all experiments of this paper do it: Adam, the paper's `poly` learning rate,
batches drawn by index.
"""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import poly

Loss = Callable[[Tensor, Tensor], Tensor]


def uniform_batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Endless batches of indices, one permutation after the other."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator).split(size)[: max(count // size, 1)]


def class_table(target: Tensor) -> Tensor:
    """Which classes each image has: (images, classes)."""
    return torch.zeros(len(target), int(target.max()) + 1, dtype=torch.bool).scatter_(
        1, target.flatten(1), True
    )


def equibatches(presence: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    """Endless batches from the paper's sampler, which cycles over the columns of the table that
    have an image.
    """
    sampler = eg.EquibatchSampler(
        presence, classes=presence.any(0).nonzero()[:, 0].tolist(), seed=seed
    )
    # every pass is the sampler's next epoch
    stream = itertools.chain.from_iterable(itertools.repeat(sampler))
    while True:
        yield torch.tensor(list(itertools.islice(stream, size)))


def train(
    model: nn.Module,
    loss: Loss,
    part: Part,
    batches: Iterator[Tensor],
    *,
    learning_rate: float,
    iterations: int,
    watch: Callable[[int], None] = lambda iteration: None,
) -> None:
    """Train in place, and leave the network ready to predict. `watch` is called after every
    iteration with its number.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: poly(min(step / iterations, 1.0))
    )
    for iteration, chosen in zip(range(1, iterations + 1), batches, strict=False):
        model.train()
        optimiser.zero_grad()
        loss(model(part.inputs[chosen]), part.target[chosen]).backward()
        optimiser.step()
        schedule.step()
        model.eval()
        watch(iteration)


@torch.no_grad()
def scores_of(model: nn.Module, images: Tensor, batch: int = 100) -> Tensor:
    """What the trained network says of all images."""
    return torch.cat([model(part) for part in images.split(batch)])
