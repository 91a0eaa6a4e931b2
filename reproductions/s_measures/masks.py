"""What experiments 2 and 3 show of trainings of masks: small and large images apart, and how steady
the test is over the epochs.
"""

from collections.abc import Mapping
from statistics import stdev
from typing import Any

from evalgrad_lab.tune import Tuned
from reproductions.claims import each, spread

SHOWN = ("ours", "small images", "large images", "swing over the epochs")
SWING = "The swing is the standard deviation of the second half of the epochs, on test"


def shown(method: Tuned, course: Mapping[str, Any], name: str) -> list[str]:
    """Under the columns of `SHOWN`; a part without images stays empty."""
    parts = zip(*each(method.results, "by size"), strict=True)
    sizes = ["" if None in part else spread(part) for part in parts]
    return [spread(on_test(method)), *sizes, spread(course["swing"][name])]


def on_test(method: Tuned) -> list[float]:
    """Test IoU of every seed."""
    return each(method.results, "test")


def course_of(found: Mapping[str, Tuned]) -> dict[str, Any]:
    """How the trainings went, by seed: their swing over the second half of the epochs, and how far
    small images are behind large ones.
    """

    def swing(curve: list[float]) -> float:
        half = curve[len(curve) // 2 :]
        return stdev(half) if len(half) > 1 else 0.0

    def apart(pair: list[float | None]) -> float:
        small, large = pair
        return 0.0 if small is None or large is None else abs(large - small)

    results = {name: method.results for name, method in found.items()}
    return {
        "swing": {name: [swing(one["curve"]) for one in some] for name, some in results.items()},
        "large - small": {n: [apart(one["by size"]) for one in s] for n, s in results.items()},
    }
