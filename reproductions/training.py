"""What the papers' trainings share, on the lab's engine: one training of a loss of scores and
target, several on from one base network, and cases that are tuned or repeated over the seeds.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batches, sampled
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import Hook, Pace, Phase, Training, fit
from evalgrad_lab.runs import Runs, Settings
from evalgrad_lab.tune import Case, Tuned, best_mean, tune

Counts = Sequence[int]  # of examples to train, to validate and to test
Loss = Callable[[Tensor, Tensor], Tensor]
Name = TypeVar("Name", bound=Hashable)
Network = TypeVar("Network", bound=nn.Module)
Way = TypeVar("Way")
adam_poly = partial(Pace, optimiser="adam", schedule="poly")  # (learning rate, seed=)


def train(
    network: Network,
    loss: Loss,
    batches: Batches,
    pace: Pace,
    steps: int,
    hooks: Sequence[Hook] = (),
) -> Network:
    """Train in place; the network comes back ready to predict."""
    phase = Phase(lambda output, batch: loss(output, batch.target), steps)
    fit(Training(network, [phase], pace), batches, hooks)
    return network.eval()


def equibatches(part: Part, presence: Tensor, size: int, seed: int) -> Batches:
    """Batches of the Lovász paper's sampler, over the classes that have an image."""
    classes = presence.any(0).nonzero()[:, 0].tolist()
    return sampled(part, eg.EquibatchSampler(presence, classes=classes, seed=seed), size)


def seeded(seed: int, build: Callable[[], Network]) -> Network:
    """A new network, whose weights depend on the seed alone."""
    torch.manual_seed(seed)
    return build()


def repeated(
    runs: Runs, function: Callable[..., Any], cases: Mapping[Name, Settings], seeds: Sequence[int]
) -> dict[Name, list[Any]]:
    """The results of every case, seed by seed."""
    asked = [{**case, "seed": seed} for case in cases.values() for seed in seeds]
    found = iter(runs.run(function, asked))
    return {name: [next(found) for _ in seeds] for name in cases}


def tuned(
    runs: Runs,
    function: Callable[..., Any],
    cases: Mapping[Name, Settings],
    grid: Sequence[Settings],
    seeds: Sequence[int],
    *,
    search: Sequence[int] | None = None,
    score: Callable[[Any], float] = lambda result: result["validation"],
) -> dict[Name, Tuned]:
    """Every case at the point that validation chooses, with the first seed or those of `search`."""
    asked = [Case(case, grid) for case in cases.values()]
    first = seeds[:1] if search is None else search
    found = tune(runs, function, asked, search=first, seeds=seeds, score=score)
    return dict(zip(cases, found, strict=True))


def forked(
    base: Network,
    ways: Mapping[Name, Way],
    rates: Sequence[float],
    further: Callable[[Network, Way, float], Any],
) -> dict[Name, list[Any]]:
    """`further(network, way, rate)` on a copy of the base for every way and learning rate. Part of
    one run, so that the base is trained once.
    """
    return {
        name: [further(copy.deepcopy(base), way, rate) for rate in rates]
        for name, way in ways.items()
    }


def best_forks(
    names: Iterable[Name],
    found: Sequence[Mapping[Name, Sequence[Any]]],
    rates: Sequence[float],
    score: Callable[[Any], float] = lambda result: result["validation"],
) -> dict[Name, Tuned]:
    """What `forked` gave for each seed, every way at the learning rate that validation chooses."""
    ways = {}
    for name in names:  # not of what the store gives back, which sorts them
        scores = [[score(seed[name][at]) for seed in found] for at in range(len(rates))]
        best = best_mean(scores)
        point = {"learning_rate": rates[best]}
        ways[name] = Tuned(point, [seed[name][best] for seed in found], scores)
    return ways


def rates_in_words(found: Mapping[str, Tuned], rates: Sequence[float] = (), by: str = "") -> str:
    """The learning rate chosen for each, with the candidates and the criterion if given."""
    if len(rates) == 1:
        return f"learning rate {rates[0]:g}, the same for all and not tuned"
    chosen = [f"{name} {case.point['learning_rate']:g}" for name, case in found.items()]
    choice = f"learning rate chosen from {list(rates)} by {by}: " if rates else ""
    return choice + ", ".join(chosen)
