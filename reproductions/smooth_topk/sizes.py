"""How large the learned experiments are: data, steps, seeds and the grid of all objectives."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalgrad_lab.runs import Runs, Settings
from evalgrad_lab.tune import product
from reproductions.sizes import Size
from reproductions.smooth_topk.training import train_pairs
from reproductions.training import Counts, Name, tuned


class Scale(NamedTuple):
    """One size of the learned experiments."""

    data: str
    sizes: Counts  # pairs for training, validation and test
    steps: int
    seeds: tuple[int, ...]
    grid: list[Settings]
    width: int = 128  # of the network: hidden units, or channels of the first convolution

    @property
    def common(self) -> Settings:
        """What all pieces of an experiment share."""
        shared = {"data": self.data, "sizes": list(self.sizes), "steps": self.steps}
        return {**shared, "width": self.width}

    def tuned(
        self, runs: Runs, cases: Mapping[Name, Settings], grid: Sequence[Settings] | None = None
    ) -> dict[Name, list[Any]]:
        """Every case over the seeds, at the point with the best top-5 on validation."""
        asked = {name: {**self.common, **case} for name, case in cases.items()}
        grid = grid or self.grid

        def score(result: Any) -> float:
            return float(result["best"]["validation"])

        found = tuned(runs, train_pairs, asked, grid, self.seeds, score=score)
        return {name: case.results for name, case in found.items()}

    def sentence(self) -> str:
        """The setting in words."""
        data = "digits-100 (scikit-learn's digits in pairs)"
        network = f"a perceptron with two hidden layers of {self.width} units"
        if self.data == "cifar":
            data = (
                "CIFAR-10 pairs (two photographs of 8x8 pixels side by side; a label is in the"
                " group `label - label % 5`, as in the authors' code)"
            )
            network = f"three convolutions, the first with {self.width} channels"
        train, validation, test = self.sizes
        names = ("learning_rate", "weight_decay")
        rates, decays = (sorted({point[name] for point in self.grid}) for name in names)
        return (
            f"{data}, {train} pairs for training, {validation} for validation, {test} for test;"
            f" {network}; AdamW, cosine schedule, {self.steps} steps with batches of 100. For"
            f" every objective, the learning rate is chosen from {rates} and the weight decay from"
            f" {decays} on the validation pairs of the first seed. ± is the standard deviation"
            " over the seeds."
        )


GRID = product({"learning_rate": [0.003, 0.01], "weight_decay": [0.01, 1.0]})
SCALES: dict[Size, Scale] = {
    "tiny": Scale("digits", (200, 100, 100), 4, (0, 1), GRID[:2]),
    "default": Scale("digits", (2000, 1000, 2000), 400, (0, 1, 2, 3, 4), GRID),
    "full": Scale("cifar", (4000, 1000, 2000), 800, (0, 1, 2), GRID, width=16),
}
