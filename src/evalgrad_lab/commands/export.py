"""`evalgrad export`: a trained network with its normalisation and its decision, as one program that
needs neither evalgrad nor the code of the model. No torch here, so that `--help` is quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evalgrad_lab.options import Options, option


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """What `evalgrad export` takes."""

    run: Path = option(help="the --out folder of `evalgrad train`", positional=True)
    out: Path = option(help="the file to write: model.pt2, or model.onnx")
    format: Literal["pt2", "onnx"] = option("pt2", help="of torch.export, or ONNX (pt2)")
    size: tuple[float, ...] | None = option(
        None, help="of images: height,width, e.g. 64,64; not for rows of numbers"
    )


@dataclass(frozen=True)
class ExportResult:
    """Where the program is, and the shape of its inputs; any number of them at a time. The `note`
    says where it decides otherwise than `predict`.
    """

    path: Path
    inputs: tuple[int, ...]
    note: str = ""


def export(options: ExportOptions) -> ExportResult:
    """Write the program; it takes any number of inputs of one size."""
    from evalgrad_lab import exporting

    return exporting.write(options)


def main(options: ExportOptions) -> int:
    """The command."""
    result = export(options)
    shape = ", ".join(map(str, result.inputs))
    note = f"; {result.note}" if result.note else ""
    print(f"{result.path}: inputs (N, {shape}) -> labels, probabilities{note}")
    return 0
