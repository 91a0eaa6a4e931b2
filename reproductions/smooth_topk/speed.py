"""Tables 3 and 4: how long the algorithms take as the number of classes grows."""

import itertools
from collections.abc import Mapping
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.smooth_topk.measurements import BOTH, FORWARD, seconds
from reproductions.verdicts import Verdict, judge

MOST = (100, 1000, 10000, 100000)
CLASSES = {"tiny": (20, 50), "default": MOST[:3], "full": MOST}
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
        settings.append({**case, "rounds": 5 if n <= 1000 else 3})
    found = iter(runs.run(seconds, settings, alone=True))
    numbers: dict[str, Any] = {"n": list(CLASSES[size]), "forward": {}, "both": {}}
    for kind, name in names:
        numbers[kind][name] = [next(found) for _ in CLASSES[size]]
    tables = [_times(numbers, "forward"), _times(numbers, "both")]
    setting = (
        f"processor time on one CPU thread, k = 5, batches of {rows}, normal scores of deviation 3;"
        " the paper used a Titan Xp."
    )
    return Outcome(numbers, setting, [0], tables)


def _paper_seconds(kind: str, name: str, n: int) -> str:
    """The paper's time; table 4 has the backward pass alone: the forward of DC is added."""
    if n not in REPORTED["n"] or name == "ours":
        return ""
    at = REPORTED["n"].index(n)
    if kind == "forward":
        return f"{REPORTED['forward'][name][at]:.3f}"
    return f"{REPORTED['forward']['DC'][at] + REPORTED['backward'][name][at]:.3f}"


def _times(numbers: Mapping[str, Any], kind: str) -> Table:
    names = list(numbers[kind])
    paper = [name for name in names if name != "ours"]
    rows = []
    for row, n in enumerate(numbers["n"]):
        theirs = [_paper_seconds(kind, name, n) for name in paper]
        rows.append([n, *theirs, *[f"{numbers[kind][name][row]:.2g}" for name in names]])
    what = "Table 3: forward" if kind == "forward" else "Tables 3 and 4: forward and backward"
    title = f"{what} pass, seconds"
    return Table(title, ["n", *[f"paper {name}" for name in paper], *names], rows)


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """DC grows more slowly with n than SA; Algorithm 2 beats automatic differentiation."""
    forward, both = numbers["forward"], numbers["both"]
    growth = {name: times[-1] / times[0] for name, times in forward.items()}
    slower = growth["DC"] < growth["SA"] and forward["DC"][-1] < forward["SA"][-1]
    custom = both["DC (CB)"][-1] < both["DC (AD)"][-1]
    n = numbers["n"]
    ratios = [
        forward["DC"][-1] / forward["SA"][-1],
        both["DC (CB)"][-1] / both["DC (AD)"][-1],
        both["ours"][-1] / both["DC (CB)"][-1],
    ]
    sentence = (
        f"from n = {n[0]} to {n[-1]} SA becomes {growth['SA']:.0f} and DC {growth['DC']:.0f} times"
        f" slower; at n = {n[-1]} DC takes {ratios[0]:.2f} of SA's time, and Algorithm 2"
        f" {ratios[1]:.2f} of automatic differentiation's. On one CPU thread DC's parallelism does"
        f" not count, so its time grows with n. Ours takes {ratios[2]:.3f} of the time of DC with"
        " Algorithm 2."
    )
    return judge([slower, custom], sentence)


EXPERIMENT = Experiment(
    "smooth_topk/table-3",
    "The time of the algorithms",
    "Tables 3 and 4, appendix B.3.2",
    "divide and conquer (DC) grows more slowly with n than summation (SA); Algorithm 2 beats"
    " automatic differentiation.",
    REPORTED,
    run,
    verdict,
)
