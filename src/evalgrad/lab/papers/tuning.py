"""The same search for every method: all candidates on the first seed, then the best one on every seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalgrad.lab.papers.pieces import Pieces, Settings


@dataclass(frozen=True)
class Tuned:
    """The settings that were best for a method, and what the piece gave with them, seed by seed."""

    settings: Settings
    results: Sequence[Any]

    def values(self, name: str) -> list[float]:
        return [result[name] for result in self.results]


def tuned(
    pieces: Pieces,
    piece: Callable[..., Any],
    candidates: Mapping[str, Sequence[Settings]],
    seeds: Sequence[int],
    *,
    by: str = "validation",
) -> dict[str, Tuned]:
    """For every method the candidate whose result has the largest `by` on the first seed, with its results on all seeds."""
    tried = [(name, settings) for name, choice in candidates.items() for settings in choice]
    found = pieces.run(piece, [{**settings, "seed": seeds[0]} for _, settings in tried])
    best: dict[str, tuple[Settings, Any]] = {}
    for (name, settings), result in zip(tried, found, strict=True):
        if name not in best or _finite(result[by]) > _finite(best[name][1][by]):
            best[name] = settings, result
    later = [(name, seed) for name in best for seed in seeds[1:]]
    rest = iter(pieces.run(piece, [{**best[name][0], "seed": seed} for name, seed in later]))
    return {name: Tuned(settings, [first, *(next(rest) for _ in seeds[1:])]) for name, (settings, first) in best.items()}


def _finite(score: float) -> float:
    """A training that diverged is worse than any other."""
    return score if math.isfinite(score) else -math.inf
