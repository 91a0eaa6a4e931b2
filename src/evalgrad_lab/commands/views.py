"""How a network is applied to images: options of `train`, `evaluate` and `predict`."""

from dataclasses import dataclass, fields
from typing import Any

from evalgrad_lab.options import Options, option


@dataclass(frozen=True, kw_only=True)
class Views(Options):
    """Tiles, scales, flips and crops. `evaluate` and `predict` use those of the training unless
    others are given.
    """

    tiles: int | None = option(
        None, help="segmentation: measure on this many tiles of full height", least=1
    )
    overlap: int | None = option(None, help="pixels that neighbouring tiles share", least=0)
    scales: tuple[float, ...] | None = option(
        None, help="segmentation: measure the mean over these scales, e.g. 1,0.75,0.5"
    )
    flips: bool = option(False, help="segmentation: measure the flipped image too")
    crops: int | None = option(
        None, help="classification: measure top-k marginals over ten crops of this side", least=1
    )

    def views(self) -> dict[str, Any]:
        """Those that are given, as JSON has them."""
        values = self.plain()
        chosen = {one.name: values[one.name] for one in fields(Views)}
        return {name: v for name, v in chosen.items() if v is not None and v is not False}
