"""Figure 9 and table 4: an ENet, fine-tuned with Lovász-Softmax at several batch sizes."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.bases import in_words, with_bases
from reproductions.claims import MOVES, Claim, above, each, minus, obstacle, similar, spread
from reproductions.data_sets import CAMVID_ENET as DATA
from reproductions.drawing import mean_curve, new_figure, plot_lines
from reproductions.experiment import WITH_CAMVID, Experiment, Outcome, Table
from reproductions.lovasz.enet_pieces import fine_tunings
from reproductions.sizes import Size, by_size
from reproductions.training import best_forks, rates_in_words

RATES = [0.001, 0.003]
SETTINGS = by_size(
    "iterations every batch_sizes rates",
    tiny=(1, 1, [1, 2], RATES[:1]),
    default=(100, 25, [2, 10, 20], RATES[:1]),
)
SEEDS = {"tiny": [0], "default": [0, 1, 2]}
KINDS = ("class", "category")
FURTHER = "weighted cross-entropy, batch 10"
TABLE_4 = {
    "base": {"class": 58.29, "category": 80.40},
    "Lovász, batch 10": {"class": 63.06, "category": 83.58},
}


def run(size: Size, runs: Runs) -> Outcome:
    """All fine-tunings from one base network per seed."""
    setting, seeds = SETTINGS[size], SEEDS[size]
    asked = [{"start": start, **setting} for start in with_bases(runs, DATA, size, seeds)]
    found = runs.run(fine_tunings, asked)
    names = [FURTHER, *map("Lovász, batch {}".format, setting["batch_sizes"])]
    tuned = best_forks(names, each(found, "tuned"), setting["rates"])
    results = {name: each(found, name) for name in ("constant", "base")}
    results |= {name: each(way.results, "test") for name, way in tuned.items()}
    rows = [
        [name, *(spread(each(ones, key)) for key in KINDS), *_reported(name)]
        for name, ones in results.items()
    ]
    columns = ["network", "class IoU", "category IoU", "paper: class IoU", "paper: category IoU"]
    words = _setting(size, rates_in_words(tuned, setting["rates"], "validation IoU"))
    return Outcome(
        {name: {key: each(ones, key) for key in KINDS} for name, ones in results.items()},
        words,
        seeds,
        [Table("Table 4: IoU (%) on test images", columns, rows)],
        {"Figure 9: class IoU on validation during fine-tuning, mean over the seeds": _draw(tuned)},
    )


def _setting(size: Size, rates: str) -> str:
    groups = "; ".join(
        f"{name}: {', '.join(DATA.classes[one] for one in classes)}"
        for name, classes in DATA.categories.items()
    )
    return (
        f"{in_words(DATA, DATA.setting(size))}; then {SETTINGS[size]['iterations']} iterations of"
        f" each fine-tuning, {rates}. Categories: {groups}. Cityscapes' iIoU has no counterpart"
        " here."
    )


def _reported(name: str) -> list[str]:
    return [f"{TABLE_4[name][key]:.2f}" if name in TABLE_4 else "" for key in KINDS]


def _draw(tuned: Mapping[str, Tuned]) -> Figure:
    figure = new_figure(6.0, 3.0)
    lines = {name: mean_curve(each(way.results, "curve")) for name, way in tuned.items()}
    words = {"xlabel": "iteration of fine-tuning", "ylabel": "class IoU, %"}
    plot_lines(figure.subplots(), lines, **words)
    return figure


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Lovász beats more weighted cross-entropy, larger batches are better, categories gain too."""
    # from the smallest batch to the largest
    lovasz = [name for name in numbers if name.startswith("Lovász")]
    first, last = (numbers[name]["class"] for name in (lovasz[0], lovasz[-1]))
    base, further = numbers["base"], numbers[FURTHER]["class"]
    networks = {name: some["class"] for name, some in numbers.items() if name != "constant"}
    moved = minus(further, base["class"])
    how: Any = {"unless": obstacle(networks, numbers["constant"]["class"], moved)}
    gain = {k: TABLE_4["Lovász, batch 10"][k] - TABLE_4["base"][k] for k in KINDS}
    words = "more weighted cross-entropy hardly changes the class IoU"
    categories = numbers[lovasz[-1]]["category"]
    largest = f"{lovasz[-1]} (the paper: 10)"
    return [
        above(f"{largest}, raises the class IoU", last, base["class"], paper=gain["class"], **how),
        similar(words, further, base["class"], bound=MOVES, **how),
        above("larger batches are better: the largest against the smallest", last, first, **how),
        above(
            f"{largest}, raises the category IoU too",
            categories,
            base["category"],
            paper=gain["category"],
            **how,
        ),
    ]


ENET = Experiment(
    "lovasz/table-4-camvid-enet",
    "Fine-tuning an ENet, on CamVid",
    "Figure 9, table 4, on CamVid",
    "fine-tuning with Lovász-Softmax raises class and category IoU, more so with larger batches;"
    " further training with weighted cross-entropy hardly does.",
    run,
    judge,
    options=WITH_CAMVID,
)
