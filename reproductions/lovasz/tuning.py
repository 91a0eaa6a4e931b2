"""How the experiments choose a learning rate: the best on validation, of the same candidates for
every loss.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from reproductions.pieces import Pieces


def tuned(
    pieces: Pieces,
    function: Callable[..., Any],
    variants: Mapping[str, Mapping[str, Any]],
    rates: Sequence[float],
    seeds: Sequence[int],
) -> dict[str, tuple[float, list[Any]]]:
    """For every variant the learning rate with the best mean `validation` over the seeds, and the
    results of the seeds with it.
    """
    grid = [(name, rate, seed) for name in variants for rate in rates for seed in seeds]
    found = pieces.run(
        function,
        [{**variants[name], "learning_rate": rate, "seed": seed} for name, rate, seed in grid],
    )
    by_setting = dict(zip(grid, found, strict=True))
    best = {}
    for name in variants:
        results = {rate: [by_setting[name, rate, seed] for seed in seeds] for rate in rates}
        rate = max(rates, key=lambda rate: fmean(result["validation"] for result in results[rate]))
        best[name] = rate, results[rate]
    return best
