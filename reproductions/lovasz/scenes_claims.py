"""What the paper claims by table 2, the text around it and figure 6."""

from collections.abc import Mapping
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any

from reproductions.claims import Claim, above, minus, obstacle, similar

ENDS, LOSSES = ("", " + equibatch", " + equibatch, longer"), ("cross-entropy", "Lovász")
# Validation mIoU of table 2: single-scale, multi-scale, with the CRF
TABLE_2 = {
    "cross-entropy": (74.64, 76.23, 76.53),
    "cross-entropy + equibatch": (75.53, 76.70, 77.31),
    "cross-entropy + equibatch, longer": (74.97, 76.24, 76.73),
    "Lovász": (76.56, 77.24, 77.99),
    "Lovász + equibatch": (76.53, 77.28, 78.49),
    "Lovász + equibatch, longer": (77.41, 78.22, 79.12),
}
# Mean mIoU of 20 batches in the text: as it is, and by Nowozin's rule
PRIOR_WORK = {
    "batches": {"Lovász + equibatch, longer": 72.5, "cross-entropy + equibatch": 68.7},
    "Nowozin": {"cross-entropy + equibatch": 65.1},
}
SAME = 0.5  # points of mIoU: a gain within this is called none


def judge_table(numbers: Mapping[str, Any]) -> list[Claim]:
    """Lovász is above; equibatch helps cross-entropy, longer training Lovász."""
    names = [name for name in TABLE_2 if name in numbers]
    ends = [end for end in ENDS if f"Lovász{end}" in names]
    miou = {name: numbers[name]["dataset"] for name in ("constant", "base", *names)}
    networks = {name: miou[name] for name in names}
    moved = minus(miou["cross-entropy"], miou["base"])
    unless = obstacle(networks, miou["constant"], moved)
    paper = {name: values[0] for name, values in TABLE_2.items()}
    rows = [
        above(
            f"Lovász is above cross-entropy{end}",
            miou[f"Lovász{end}"],
            miou[f"cross-entropy{end}"],
            paper=paper[f"Lovász{end}"] - paper[f"cross-entropy{end}"],
            unless=unless,
        )
        for end in ends
    ]
    helped = {"equibatch": "cross-entropy", "longer training": "Lovász"}
    for what, (start, end) in zip(helped, pairwise(ends), strict=False):
        for loss in LOSSES:
            pair, how = (miou[f"{loss}{end}"], miou[f"{loss}{start}"]), {"unless": unless}
            effect: Any = {"paper": paper[f"{loss}{end}"] - paper[f"{loss}{start}"], **how}
            if helped[what] == loss:
                rows.append(above(f"{what} helps {loss}", *pair, **effect))
            else:
                text = f"{what} hardly changes {loss}"
                rows.append(similar(text, *pair, bound=SAME, **effect))
    tested = {name: numbers[name] for name in names}
    return rows + judge_tests(tested, numbers, unless) + judge_batches(tested, unless)


def judge_tests(
    networks: Mapping[str, Any], numbers: Mapping[str, Any], unless: str
) -> list[Claim]:
    """What is done with a network at the test."""
    reason = unless or ("" if numbers["rescaled"] else "trained without the paper's rescaling")
    steps = {"several scales help": ("multi-scale", "dataset", 1, 0)}
    steps["a CRF helps further"] = ("CRF", "multi-scale", 2, 1)
    rows = []
    for text, (after, before, later, earlier) in steps.items():
        if all(after in some for some in networks.values()):
            gains = [minus(some[after], some[before]) for some in networks.values()]
            gain = [fmean(seed) for seed in zip(*gains, strict=True)]
            paper = fmean(TABLE_2[name][later] - TABLE_2[name][earlier] for name in networks)
            rows.append(above(text, gain, 0.0, paper=paper, unless=reason))
    return rows


def judge_batches(networks: Mapping[str, Any], unless: str) -> list[Claim]:
    """On batches, Lovász gains and Nowozin's rule loses. CamVid lacks the paper's Lovász, and has
    the rule on all test images: no number of the paper stands for that.
    """
    best, plain = PRIOR_WORK["batches"]
    if best not in networks:
        ruled = networks[plain]["groups"]
        text = f"is above Nowozin's rule on {plain}, all of test (the paper: batches)"
        names = (plain, f"Lovász{ENDS[1]}")
        return [above(f"{n} {text}", networks[n]["dataset"], ruled, unless=unless) for n in names]
    scores = {
        best: networks[best]["batches"],
        plain: networks[plain]["batches"],
        f"Nowozin's rule on {plain}": networks[plain]["Nowozin"],
    }
    papers = [value for some in PRIOR_WORK.values() for value in some.values()]
    paper = dict(zip(scores, papers, strict=True))
    return [
        above(
            f"batches: {one} is above {other}",
            scores[one],
            scores[other],
            paper=paper[one] - paper[other],
            unless=unless,
        )
        for one, other in combinations(scores, 2)
    ]


def judge_curves(numbers: Mapping[str, Any]) -> list[Claim]:
    """Training per image wins image mIoU and loses dataset mIoU, which batch mIoU follows."""
    networks = {name: numbers[name]["dataset"] for name in ("cross-entropy", "Lovász")}
    single, batch = numbers["Lovász per image"], numbers["Lovász"]
    moved = minus(networks["cross-entropy"], numbers["base"]["dataset"])
    every = networks | {"Lovász per image": single["dataset"]}
    unless = obstacle(every, numbers["constant"]["dataset"], moved)
    how: Any = {"unless": unless}
    follows = numbers["correlation"]
    words = "the batch mIoU follows the dataset mIoU more closely than the image mIoU does"
    return [
        above("training per image gains image mIoU", single["image"], batch["image"], **how),
        above("and loses dataset mIoU", batch["dataset"], single["dataset"], **how),
        above(f"{words} (correlation)", follows["batch"], follows["image"], digits=2, **how),
    ]
