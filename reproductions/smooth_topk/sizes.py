"""How large the learned experiments are: data, steps, seeds and the grid of all objectives."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalgrad_lab.runs import Runs, Settings
from evalgrad_lab.tune import product
from reproductions.experiment import Size
from reproductions.smooth_topk.training import train_pairs
from reproductions.training import Counts, Name, tuned


class Scale(NamedTuple):
    """One size of the learned experiments."""

    data: str
    sizes: Counts  # pairs for training, validation and test
    steps: int
    seeds: tuple[int, ...]
    grid: list[Settings]

    @property
    def common(self) -> Settings:
        """What all pieces of an experiment share."""
        return {"data": self.data, "sizes": list(self.sizes), "steps": self.steps}

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
        if self.data == "mnist":
            data = "MNIST-100 (MNIST digits of 14x14 pixels in pairs)"
        train, validation, test = self.sizes
        names = ("learning_rate", "weight_decay")
        rates, decays = (sorted({point[name] for point in self.grid}) for name in names)
        return (
            f"{data}, {train} pairs for training, {validation} for validation, {test}"
            " for test; a perceptron with two hidden layers of 128 units; AdamW, cosine schedule,"
            f" {self.steps} steps of batch 100. Every objective searches learning rate {rates} and"
            f" weight decay {decays} on the validation pairs of the first seed. ± is the deviation"
            " over the seeds."
        )


GRID = product({"learning_rate": [0.003, 0.01], "weight_decay": [0.01, 1.0]})
SCALES: dict[Size, Scale] = {
    "tiny": Scale("digits", (200, 100, 100), 4, (0, 1), GRID[:2]),
    "default": Scale("digits", (2000, 1000, 2000), 400, (0, 1, 2, 3, 4), GRID),
    "full": Scale("mnist", (20000, 5000, 10000), 4000, (0, 1, 2), GRID),
}
