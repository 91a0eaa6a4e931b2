"""What the experiments share: budgets, the methods of table 2, the search for the rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned, product
from reproductions.experiment import Size
from reproductions.loss_max_pooling.training import train_scenes
from reproductions.training import tuned

Method = Mapping[str, Any]


@dataclass(frozen=True)
class Budget:
    """What is trained on, for how long, with which learning rates to choose from."""

    data: str
    sizes: Sequence[int]
    iterations: int
    long: int  # iterations of the longer training
    rates: Sequence[float]
    seeds: Sequence[int]

    def words(self) -> str:
        images = (
            "tiles of 32x32 pixels of a Landsat scene with 7 land-cover classes, split by tiles"
        )
        if self.data == "scenes":
            images = (
                "digit scenes of 32x32 pixels, 10 digits with a 9:1 tail and a dominant background,"
                " class 0"
            )
        train_images, validation, test = self.sizes
        return (
            f"{images}, in place of Cityscapes, which cannot be had here; {train_images},"
            f" {validation} and {test} images for training, validation and test; a U-Net of 54k"
            " parameters, Adam, cosine, batch 16; the learning rate of every method is chosen from"
            f" {', '.join(f'{rate:g}' for rate in self.rates)} on validation with the first seed."
        )


BUDGETS: dict[Size, Budget] = {
    "tiny": Budget("scenes", (32, 8, 8), 2, 3, (0.012,), (0,)),
    "default": Budget("scenes", (1500, 200, 400), 400, 1000, (0.008, 0.02), (0, 1, 2)),
    "full": Budget("landsat", (110, 30, 50), 400, 1000, (0.004, 0.01, 0.025), (0, 1, 2)),
}
PLAIN, WEIGHTED = {"kind": "plain"}, {"kind": "weighted"}
BLEND = 0.5  # half of the samples by the classes that do badly; the paper gives no share


def pooled(p: float = 1.3, support: float = 0.25) -> dict[str, Any]:
    """Loss max-pooling; the defaults are the paper's best."""
    return {"kind": "pooled", "p": p, "support": support}


METHODS: dict[str, Method] = {
    "BASE": {"loss": PLAIN, "blend": 0.0},
    "BASE+": {"loss": PLAIN, "blend": BLEND},
    "inverse median frequency": {"loss": WEIGHTED, "blend": 0.0},
    "proposed loss only": {"loss": pooled(), "blend": 0.0},
    "LMP": {"loss": pooled(), "blend": BLEND},
}


def trained(
    runs: Runs, budget: Budget, methods: Mapping[str, Method], iterations: int
) -> dict[str, Tuned]:
    """Every method with the learning rate that validation chose for it."""
    common = {"data": budget.data, "sizes": list(budget.sizes), "iterations": iterations}
    cases = {name: {**common, **method} for name, method in methods.items()}
    grid = product({"learning_rate": budget.rates})
    return tuned(runs, train_scenes, cases, grid, budget.seeds)
