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
        " without logarithms that the paper times; SA log is as stable as DC."
    )
    return Outcome(numbers, setting, [0], tables)


def _steps(times: Mapping[str, list[float]], side: int, rows: int, rounds: int) -> Table:
    ce, ours = (statistics.median(times[name]) for name in ("CE", "L5,0.1"))
    title = f"Whole steps of ResNet-18, {rows} images of {side} x {side} pixels, {rounds} rounds"
    shown = [["CE", ce, 1.0, 1.0], ["L5,0.1", ours, ours / ce, LONGER]]
    return Table(title, ["loss", "seconds", "as a share of CE", "paper"], shown)


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
            forward = statistics.median(numbers["forward"]["DC"][row])
            both = [statistics.median(numbers[kind][name][row]) for name in reported]
            ours += [f"{time - forward:.2g}" for time in both]
        rows.append([n, *theirs, *ours])
    what = "Table 3: forward pass" if kind == "forward" else "Table 4: forward and backward pass"
    more = [f"{name}, backward alone" for name in reported] if kind == "both" else []
    columns = ["n", *[f"paper {name}" for name in reported], *names, *more]
    return Table(f"{what}, seconds", columns, rows)


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """DC grows more slowly with n than SA; Algorithm 2 beats automatic differentiation. The times
    of the rounds stand for seeds, logarithms of ratios for differences.
    """

    def logs(kind: str, name: str, row: int = -1) -> list[float]:
        return [math.log(time) for time in numbers[kind][name][row]]

    growth = {name: minus(logs("forward", name), logs("forward", name, 0)) for name in ("SA", "DC")}
    first, last = numbers["n"][0], numbers["n"][-1]
    words = f"from n = {first} to {last} SA slows down more than DC (log of the factor)"
    faster = f"at n = {last} {{}} is slower than {{}} (log of the factor)"
    pairs = [("forward", "SA", "DC"), ("both", "DC (AD)", "DC (CB)"), ("both", "DC (CB)", "ours")]
    rows = [
        above(faster.format(a, b), logs(kind, a), logs(kind, b), digits=2) for kind, a, b in pairs
    ]
    longer = [[math.log(time) for time in numbers["step"][name]] for name in ("CE", "L5,0.1")]
    most = [time + math.log(LONGER) for time in longer[0]]
    text = "a step of ResNet-18 takes at most 10 % longer with L5,0.1 (log of the room left)"
    room = above(text, most, longer[1], digits=2)
    return [above(words, growth["SA"], growth["DC"], digits=2), *rows, room]


EXPERIMENT = Experiment(
    "smooth_topk/table-3",
    "The time of the algorithms",
    "Tables 3 and 4, appendix B.3.2",
    "divide and conquer (DC) grows more slowly with n than summation (SA); Algorithm 2 beats"
    " automatic differentiation; a whole training takes 10 % longer with L5,0.1 than with CE.",
    run,
    judge,
    full=True,
)
