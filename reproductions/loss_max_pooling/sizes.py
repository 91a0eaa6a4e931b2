"""What the experiments share: the methods, and their fine-tunings from one base per seed."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.bases import in_words, with_bases
from reproductions.claims import each, minus, obstacle
from reproductions.data_sets import SCENES, DataSet
from reproductions.loss_max_pooling.likeness import likeness
from reproductions.loss_max_pooling.training import fine_tune_methods
from reproductions.sizes import Size, by_size
from reproductions.training import best_forks, rates_in_words

Method = Mapping[str, Any]
RATES = [0.001, 0.003]
COLUMNS = "rates iterations moments tiles"  # moments at which the training is looked at
ROADS = by_size(
    COLUMNS,
    tiny=(RATES[:1], 2, 2, True),
    default=([0.0003, 0.001], 100, 0, True),  # three passes
)
SETTINGS = {
    "scenes": by_size(
        COLUMNS,
        tiny=(RATES[:1], 2, 2, False),
        default=(RATES, 300, 8, False),
    ),
    "camvid": ROADS,
    "camvid apart": ROADS,
}
SEEDS = {"tiny": [0], "default": list(range(5))}
ROAD_SEEDS = {"tiny": [0], "default": [0, 1, 2]}
PLAIN, WEIGHTED, HARDEST = {"kind": "plain"}, {"kind": "weighted"}, {"kind": "hardest"}
SAME = 0.999  # cosine of two gradients from which on the losses count as the same
BLEND = 0.5  # half of the samples by the classes that do badly; the paper gives no share


def pooled(p: float = 1.3, support: float = 0.25) -> dict[str, Any]:
    """Loss max-pooling; the defaults are the paper's best."""
    return {"kind": "pooled", "p": p, "support": support}


METHODS: dict[str, Method] = {
    "BASE": {"loss": PLAIN, "blend": 0.0},
    "BASE+": {"loss": PLAIN, "blend": BLEND},
    "inverse median frequency": {"loss": WEIGHTED, "blend": 0.0},
    "online bootstrapping": {"loss": HARDEST, "blend": 0.0},
    "proposed loss only": {"loss": pooled(), "blend": 0.0},
    "LMP": {"loss": pooled(), "blend": BLEND},
}


ALIKE = "likeness"


class Found(NamedTuple):
    """Every method at the rate that validation chose; test mIoU of what did not train on."""

    methods: dict[str, Tuned]
    constant: list[float]
    base: list[float]
    alike: list[float]  # how much the pooled loss is like cross-entropy on the base
    words: str

    def tests(self) -> dict[str, list[float]]:
        """Test mIoU by seed of all of them."""
        methods = {name: each(method.results, "test") for name, method in self.methods.items()}
        return {"constant": self.constant, "base": self.base, **methods}

    def numbers(self) -> dict[str, list[float]]:
        """What verdicts look at: the tests, and whether the loss differs from cross-entropy."""
        return {**self.tests(), ALIKE: self.alike}


def seeds_of(data: DataSet, size: Size) -> list[int]:
    """Fewer on CamVid."""
    return (SEEDS if data is SCENES else ROAD_SEEDS)[size]


def tuned(size: Size, runs: Runs, methods: Mapping[str, Method], data: DataSet = SCENES) -> Found:
    """One piece per seed and method, so that experiments share them."""
    setting, starts = SETTINGS[data.name][size], with_bases(runs, data, size, seeds_of(data, size))
    asked = [
        {"start": start, **setting, "method": dict(method)}
        for method in methods.values()
        for start in starts
    ]
    results = iter(runs.run(fine_tune_methods, asked))
    found = {name: [next(results) for _ in starts] for name in methods}
    first = next(iter(found.values()))
    seeds = [{name: found[name][at]["tuned"] for name in methods} for at in range(len(starts))]
    best = best_forks(methods, seeds, setting["rates"])
    default = {key: value for key, value in pooled().items() if key != "kind"}
    alike = runs.run(likeness, [{"start": start, **default} for start in starts])
    words = (
        f"{in_words(data, data.setting(size))}, in place of Cityscapes, which is not available"
        " here, and of weights pretrained on MS-COCO. Each method, BASE included, trains the base"
        f" for {setting['iterations']} more iterations;"
        f" {rates_in_words(best, setting['rates'], 'validation mIoU')}. The gradients of loss"
        " max-pooling and of cross-entropy with respect to the scores of the base have a cosine"
        f" of {fmean(alike):.4f}."
    )
    return Found(best, each(first, "constant"), each(first, "base"), alike, words)


def obstacle_of(tests: Mapping[str, list[float]], plain: str = "BASE") -> str:
    """Why the networks cannot tell; cross-entropy is the further training of the base."""
    networks = {name: scores for name, scores in tests.items() if name not in ("constant", ALIKE)}
    return obstacle(networks, tests["constant"], minus(tests[plain], tests["base"]))


def obstacle_of_loss(tests: Mapping[str, list[float]]) -> str:
    """The same for claims about the loss, which must differ from cross-entropy."""
    same = fmean(tests[ALIKE]) > SAME
    reason = "the loss is a multiple of cross-entropy here: few pixels have nearly all of it"
    return obstacle_of(tests) or (reason if same else "")
