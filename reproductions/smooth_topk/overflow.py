"""Table 5: which algorithm overflows at which temperature, and how exact its gradient is."""

from collections.abc import Mapping
from typing import Any

from evalgrad_lab.data.fetched import place
from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, exact
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size
from reproductions.smooth_topk.measurements import STABLE, stability

TEMPERATURES = (1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-36)
# From which temperature down an overflow occurs; None: at none of those tried.
REPORTED = {"SA single": 1e-1, "SA double": 1e-2, "DC log single": None, "DC log double": None}
ALGORITHMS = (
    "DC log does what the authors' published code does: Algorithm 1 in log-space, and the hinge"
    " where the k-th and the next score are far apart for the temperature; SA log, which the paper"
    " does not have, is summation in log-space with the same threshold; SA has neither."
)


def run(size: Size, runs: Runs) -> Outcome:
    """Table 5, and the error of the gradients, which the paper leaves out."""
    source = "imagenet" if size == "full" else "normal"
    what = (
        "synthetic normal scores with standard deviation 3 for 1000 classes (`--full` uses"
        " those of a network)"
    )
    if size == "full":
        place("imagenet-logits")
        what = (
            "scores of EfficientNet-Lite0 on 128 crops of ImageNet photographs (paper: ResNet-18)"
        )
    rows, classes = (4, 30) if size == "tiny" else (128, 1000)
    common = {"scores": source, "rows": rows, "classes": classes}
    found = runs.run(stability, [{**common, "temperature": t} for t in TEMPERATURES])
    numbers = {"temperature": list(TEMPERATURES), "found": found}
    pairs = list(zip(TEMPERATURES, found, strict=True))
    columns = ["temperature", "paper SA", "paper DC log", *STABLE]
    finite = [_finite_row(*pair) for pair in pairs]
    errors = [[f"{t:g}", *[_error(row[name]["error"]) for name in STABLE]] for t, row in pairs]
    title = (
        "Largest error of the gradient in float32, as a share of the largest possible derivative,"
        " 1/k"
    )
    tables = [Table("Stability (float32 / float64)", columns, finite)]
    tables.append(Table(title, ["temperature", *STABLE], errors))
    return Outcome(numbers, f"{what}; k = 5, {rows} samples. {ALGORITHMS}", [0], tables)


def _finite_row(temperature: float, row: Mapping[str, Any]) -> list[str]:
    """Finite in float32 / float64; the paper's table ends at 1e-4."""
    paper = ["", ""]
    if temperature >= 1e-4:
        fine = {name: temperature > (least or 0.0) for name, least in REPORTED.items()}
        paper = [_mark(fine[f"{name} single"], fine[f"{name} double"]) for name in ("SA", "DC log")]
    ours = [_mark(row[name]["single"], row[name]["double"]) for name in STABLE]
    return [f"{temperature:g}", *paper, *ours]


def _mark(*finite: bool) -> str:
    return " / ".join("yes" if each else "no" for each in finite)


def _error(error: float | None) -> str:
    return "not finite" if error is None else f"{error:.1e}"


def first_overflow(numbers: Mapping[str, Any], name: str, precision: str) -> float | None:
    """The highest temperature at which a value is not finite."""
    pairs = zip(numbers["temperature"], numbers["found"], strict=True)
    return max((t for t, row in pairs if not row[name][precision]), default=None)


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Claim: SA overflows, in single precision earlier than in double; DC in log-space does not."""
    first = {
        (name, kind): first_overflow(numbers, name, kind)
        for name in ("SA", "DC log")
        for kind in ("single", "double")
    }
    words = {key: "never" if t is None else f"from {t:g} down" for key, t in first.items()}
    single, double = first["SA", "single"], first["SA", "double"]
    later = single is not None and (double is None or double < single)
    errors = [numbers["found"][at]["ours"]["error"] for at in range(len(numbers["found"]))]
    worst = max(error or 0.0 for error in errors)
    told = f"{words['SA', 'single']}, {words['SA', 'double']} in float64"
    never = first["DC log", "single"] is None
    return [
        exact("DC in log-space does not overflow", never, words["DC log", "single"], paper="never"),
        exact(
            "SA does, in float32 at higher temperatures than in float64",
            later,
            told,
            paper="0.1, 0.01",
        ),
        exact("our loss has exact gradients (not in the paper)", worst < 1e-5, f"{worst:.0e}"),
    ]


EXPERIMENT = Experiment(
    "smooth_topk/table-5",
    "Overflow by temperature",
    "Table 5, appendix B.3.3",
    "the summation algorithm overflows at low temperatures; divide and conquer in log-space is"
    " stable.",
    run,
    judge,
    full=True,
)
