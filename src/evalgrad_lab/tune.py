"""Grid search: each case tries its grid, a rule chooses, and the winner is run with all seeds."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from evalgrad_lab.runs import Runs, Settings

# the validation scores of each point of the grid, one per seed of the search -> the best place
Rule = Callable[[Sequence[Sequence[float]]], int]


def best_mean(scores: Sequence[Sequence[float]]) -> int:
    """The first of the points with the highest mean."""
    means = [fmean(row) for row in scores]
    return means.index(max(means))


class Case(NamedTuple):
    """What is tuned: the settings that stay, and the points that are tried."""

    settings: Settings
    grid: Sequence[Settings]


class Tuned(NamedTuple):
    """The chosen point of a case, the result of each seed with it, and the scores of all points."""

    point: Settings
    results: list[Any]
    scores: list[list[float]]


def tune(
    runs: Runs,
    function: Callable[..., Any],
    cases: Sequence[Case],
    *,
    search: Sequence[int],
    seeds: Sequence[int],
    score: Callable[[Any], float] = lambda result: result["validation"],
    rule: Rule = best_mean,
    title: str = "",
) -> list[Tuned]:
    """For each case the point that `rule` chooses of the `score` on the seeds of the `search`, then
    the results of all `seeds` with that point.

    A run that both ask for is trained once. `score` must look at validation alone: seeds that are
    in both are reported like the others.

    Args:
        runs: works the runs off.
        function: one training, called with the settings of a case, of a point, and `seed`.
        cases: what is tuned, each over its own grid.
        search: seeds of the search; one is noise.
        seeds: seeds of the results.
        score: what validation says of a result, higher is better.
        rule: how a point is chosen.
        title: of the progress.
    """
    asked = [
        {**case.settings, **point, "seed": seed}
        for case in cases
        for point in case.grid
        for seed in search
    ]
    found = iter([score(result) for result in runs.run(function, asked, title=title)])
    scores = [[[next(found) for _ in search] for _ in case.grid] for case in cases]
    points = [case.grid[rule(table)] for case, table in zip(cases, scores, strict=True)]
    winners = [
        {**case.settings, **point, "seed": seed}
        for case, point in zip(cases, points, strict=True)
        for seed in seeds
    ]
    results = iter(runs.run(function, winners, title=title))
    return [
        Tuned(point, [next(results) for _ in seeds], table)
        for point, table in zip(points, scores, strict=True)
    ]


def product(axes: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """All combinations of the values of each setting.

    >>> product({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    points: list[Settings] = [{}]
    for name, values in axes.items():
        points = [{**point, name: value} for point in points for value in values]
    return points
