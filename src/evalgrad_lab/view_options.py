"""How a network is applied to images: options of `train`, `evaluate` and `predict`, for `views`. It
does not import torch, so that `--help` is quick.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalgrad_lab.errors import UserError
from evalgrad_lab.options import Options, option

if TYPE_CHECKING:
    from evalgrad_lab.decisions import Decision
    from evalgrad_lab.saved import Description


@dataclass(frozen=True, kw_only=True)
class Views(Options):
    """Tiles, scales, flips and crops. `evaluate` and `predict` use those of the training unless
    others are given.
    """

    tiles: int | None = option(
        None, help="segmentation: predict in this many vertical tiles", least=1
    )
    overlap: int | None = option(None, help="pixels that neighbouring tiles share", least=0)
    scales: tuple[float, ...] | None = option(
        None, help="segmentation: average the probabilities over these scales, e.g. 1,0.75,0.5"
    )
    flips: bool = option(False, help="segmentation: average over the mirror image too")
    crops: int | None = option(
        None,
        help="classification: average top-k probabilities over ten crops of this size",
        least=1,
    )

    def views(self) -> dict[str, Any]:
        """Those that are given, as JSON has them."""
        values = self.plain()
        chosen = {one.name: values[one.name] for one in fields(Views)}
        return {name: v for name, v in chosen.items() if v is not None and v is not False}


@dataclass(frozen=True, kw_only=True)
class ViewOptions(Views):
    """The options that `evaluate` and `predict` share."""

    run: Path = option(help="the --out folder of `evalgrad train`", positional=True)
    threshold: float | None = option(
        None,
        help="scores above it are class 1 (the decision rule chosen by `train`)",
    )
    batch_size: int = option(16, help="batch size (16)", least=1)
    device: str = option("auto", help="device of the network (auto: cuda if available)")
    trust_model: bool = option(
        False, help="allow RUN to run the code of a network that is not built in"
    )

    def decision(self, description: "Description") -> "Decision | None":
        """What decides; None where nothing does."""
        from evalgrad_lab.decisions import Decision, plain

        if self.crops is not None:  # which gives probabilities, that no offsets were chosen for
            return plain(of_one_score=False)
        if self.threshold is None:
            return description.decision
        if description.decision is None or not description.decision.of_one_score:
            raise UserError(
                f"--threshold is for scores with one threshold; {self.run} was trained for"
                f" {description.metric} with {len(description.classes)} classes. Drop it."
            )
        return Decision("threshold", [self.threshold])
