"""Tables 3 and 4: how long the algorithms take as the number of classes grows."""

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, minus
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size, by_size
from reproductions.smooth_topk.measurements import BOTH, FORWARD, seconds, training_seconds

MOST = (100, 1000, 10000, 100000)
CLASSES = {"tiny": (20, 50), "default": MOST[:3], "full": MOST}
LONGER = 1.1  # section 5.2: a training on ImageNet with L5,0.1 against one with CE
PARALLEL = "one CPU thread: the paper's claim is about parallel hardware"
STEPS = by_size("side rows rounds", tiny=(32, 2, 2), default=(64, 32, 5), full=(112, 64, 5))
REPORTED: dict[str, Any] = {
    "n": MOST,
    "forward": {"SA": (0.006, 0.062, 0.627, 6.258), "DC": (0.011, 0.018, 0.024, 0.146)},
    "backward": {"DC (AD)": (0.093, 0.139, 0.194, 0.287), "DC (CB)": (0.007, 0.006, 0.020, 0.171)},
}


def run(size: Size, runs: Runs) -> Outcome:
    """Tables 3 and 4, one piece at a time so that nothing else runs on the machine by our doing."""
    names = [("forward", name) for name in FORWARD] + [("both", name) for name in BOTH]
    rows = 8 if size == "tiny" else 256
    settings = []
    for (kind, name), n in itertools.product(names, CLASSES[size]):
        case = {"algorithm": name, "backward": kind == "both", "n": n, "rows": rows}
        settings.append({**case, "rounds": 5})
    found = iter(runs.run(seconds, settings, alone=True))
    numbers: dict[str, Any] = {"n": list(CLASSES[size]), "forward": {}, "both": {}}
    for kind, name in names:
        numbers[kind][name] = [next(found) for _ in CLASSES[size]]
    steps = runs.run(training_seconds, [STEPS[size]], alone=True)[0]
    numbers["step"] = steps
    tables = [_times(numbers, "forward"), _times(numbers, "both"), _steps(steps, **STEPS[size])]
    setting = (
        f"processor time on one CPU thread, k = 5, batches of {rows}, normal scores with standard"
        " deviation 3; the paper used a Titan Xp, where DC runs in parallel. SA is the version"
        " without logarithms that the paper times; SA log is as stable as DC. Backward alone is"
        " what is left of forward and backward when the median forward pass of DC is subtracted."
    )
    return Outcome(numbers, setting, [0], tables)


def _steps(times: Mapping[str, list[float]], side: int, rows: int, rounds: int) -> Table:
    ce, ours = (statistics.median(times[name]) for name in ("CE", "L5,0.1"))
    title = f"Whole steps of ResNet-18, {rows} images of {side} x {side} pixels, {rounds} rounds"
    shown = [["CE", ce, 1.0, 1.0], ["L5,0.1", ours, ours / ce, LONGER]]
    return Table(title, ["loss", "seconds", "as a share of CE", "paper: a whole training"], shown)


def _times(numbers: Mapping[str, Any], kind: str) -> Table:
    """The paper's table 4 has the backward pass alone; ours is forward and backward together less
    the forward pass of DC.
    """
    names, reported = list(numbers[kind]), REPORTED["forward" if kind == "forward" else "backward"]
    rows = []
    for row, n in enumerate(numbers["n"]):
        at = MOST.index(n) if n in MOST else None
        theirs = [f"{times[at]:.3f}" if at is not None else "" for times in reported.values()]
        ours = [f"{statistics.median(numbers[kind][name][row]):.2g}" for name in names]
        if kind == "both":
            backward = [statistics.median(_backward(numbers, name, row)) for name in reported]
            ours += [f"{time:.2g}" for time in backward]
        rows.append([n, *theirs, *ours])
    what = "Table 3: forward pass" if kind == "forward" else "Table 4: forward and backward pass"
    alone = ", backward alone" if kind == "both" else ""
    more = [f"{name}{alone}" for name in reported] if alone else []
    columns = ["n", *[f"paper: {name}{alone}" for name in reported], *names, *more]
    return Table(f"{what}, seconds", columns, rows)


def _backward(numbers: Mapping[str, Any], name: str, row: int) -> list[float]:
    """What the rounds took less the median forward pass of DC."""
    forward = statistics.median(numbers["forward"]["DC"][row])
    return [time - forward for time in numbers["both"][name][row]]


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """DC grows more slowly with n than SA; Algorithm 2 beats automatic differentiation. The times
    of the rounds stand for seeds, logarithms of ratios for differences.
    """
    first, last = numbers["n"][0], numbers["n"][-1]

    def logs(kind: str, name: str, row: int = -1) -> list[float]:
        return [math.log(time) for time in numbers[kind][name][row]]

    def slower(kind: str, one: str, other: str, unless: str = "") -> Claim:
        text = f"at n = {last} {one} is slower than {other} (log of the factor)"
        return above(text, logs(kind, one), logs(kind, other), unless=unless, digits=2)

    growth = [minus(logs("forward", name), logs("forward", name, 0)) for name in ("SA", "DC")]
    words = f"from n = {first} to {last} SA slows down more than DC (log of the factor)"
    return [
        above(words, *growth, unless=PARALLEL, digits=2),
        slower("forward", "SA", "DC", PARALLEL),
        _algorithm_2(numbers),
        slower("both", "DC (CB)", "ours"),
        _room(numbers["step"]),
    ]


def _algorithm_2(numbers: Mapping[str, Any]) -> Claim:
    """Backward passes are counted in forward passes, as in the paper's text: the one that is
    subtracted cancels, and needs no logarithm of what a busy machine leaves of a difference.
    """
    text = (
        f"at n = {numbers['n'][-1]} the backward pass alone of DC (AD) is slower than that of"
        " DC (CB) on one CPU thread (forward passes of DC)"
    )
    forward = statistics.median(numbers["forward"]["DC"][-1])
    passes = [
        [time / forward for time in _backward(numbers, name, -1)] for name in REPORTED["backward"]
    ]
    return above(text, *passes, digits=2)


def _room(step: Mapping[str, list[float]]) -> Claim:
    ce, ours = ([math.log(time) for time in step[name]] for name in ("CE", "L5,0.1"))
    text = (
        "a step of ResNet-18 takes at most 10 % longer with L5,0.1 (log of the room left; the paper"
        " says it of a whole training)"
    )
    return above(text, [time + math.log(LONGER) for time in ce], ours, digits=2)


EXPERIMENT = Experiment(
    "smooth_topk/table-3",
    "The time of the algorithms",
    "Tables 3 and 4, appendix B.3.2",
    'divide and conquer (DC) grows more slowly with n than summation (SA), "thanks to its'
    ' parallelization"; the backward pass is faster by Algorithm 2 than by automatic'
    " differentiation.",
    run,
    judge,
    full=True,
)
