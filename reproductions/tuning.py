"""A fair comparison in two stages: every case searches the same grid on validation, then the
winners train with the other seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from reproductions.pieces import Pieces, Settings


class Tuned(NamedTuple):
    """The point of the grid that validation chose for a case, and the result of each seed
    with it.
    """

    point: Settings
    results: list[Any]


def tuned(
    pieces: Pieces,
    function: Callable[..., Any],
    cases: Sequence[Settings],
    grid: Sequence[Settings],
    seeds: Sequence[int],
    score: Callable[[Any], float],
) -> list[Tuned]:
    """For each case the point with the highest `score` of the first seed (ties: the earlier one),
    then all seeds with that point.

    `score` must look at validation alone: the first seed's test result is reported like the
    others'.
    """
    first = pieces.run(
        function, [_settings(case, point, seeds[0]) for case in cases for point in grid]
    )
    rows = [first[index : index + len(grid)] for index in range(0, len(first), len(grid))]
    winners = [_first_of_best([score(result) for result in row]) for row in rows]
    chosen = list(zip(cases, winners, strict=True))
    rest = pieces.run(
        function,
        [_settings(case, grid[winner], seed) for case, winner in chosen for seed in seeds[1:]],
    )
    others = len(seeds) - 1
    return [
        Tuned(grid[winner], [row[winner], *rest[number * others : (number + 1) * others]])
        for number, (row, winner) in enumerate(zip(rows, winners, strict=True))
    ]


def _first_of_best(scores: Sequence[float]) -> int:
    return scores.index(max(scores))


def _settings(case: Settings, point: Settings, seed: int) -> dict[str, Any]:
    return {**case, **point, "seed": seed}


def product(axes: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """All combinations of the values of each setting.

    >>> product({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    points: list[Settings] = [{}]
    for name, values in axes.items():
        points = [{**point, name: value} for point in points for value in values]
    return points
