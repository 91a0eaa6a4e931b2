"""`evalgrad export`: a trained network with its normalisation and its decision, as one program that
needs neither evalgrad nor the code of the model. It does not import torch, so that `--help` is
quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evalgrad_lab.options import Options, option


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Options of `export` and of the command `evalgrad export`.

    Example:
        >>> ExportOptions(run=Path("run"), out=Path("model.onnx"), format="onnx").size is None
        True
    """

    run: Path = option(help="the --out folder of `evalgrad train`", positional=True)
    out: Path = option(help="the file to write: model.pt2, or model.onnx")
    format: Literal["pt2", "onnx"] = option(
        "pt2", help="pt2: a torch.export program; onnx: ONNX (pt2)"
    )
    size: tuple[float, ...] | None = option(
        None, help="height,width of the images, e.g. 64,64; not for tables"
    )
    trust_model: bool = option(
        False, help="allow RUN to run the code of a network that is not built in"
    )


@dataclass(frozen=True)
class ExportResult:
    """What `export` returns.

    Attributes:
        path: the file that was written.
        inputs: the shape of one input; the program takes any number of them at a time.
        note: where the program decides otherwise than `predict`; "" if nowhere.

    Example:
        >>> result = export(ExportOptions(run=folder / "run", out=folder / "model.pt2"))
        >>> result.inputs  # the two columns of the table
        (2,)
    """

    path: Path
    inputs: tuple[int, ...]
    note: str = ""


def export(options: ExportOptions) -> ExportResult:
    """Write a trained network with its normalisation and decision as one program.

    The program takes any number of inputs of one size and needs neither evalgrad nor the code of
    the model.

    Args:
        options: the folder of the run, the file to write and its format.

    Example:
        >>> import torch
        >>> path = export(ExportOptions(run=folder / "run", out=folder / "model.pt2")).path
        >>> program = torch.export.load(path).module()  # of a run of `train`
        >>> [len(result) for result in program(torch.randn(5, 2))]
        [5, 5]
    """
    from evalgrad_lab import exporting

    return exporting.write(options)


def main(options: ExportOptions) -> int:
    """The command."""
    result = export(options)
    shape = ", ".join(map(str, result.inputs))
    note = f"; {result.note}" if result.note else ""
    print(f"{result.path}: inputs (N, {shape}) -> labels, probabilities{note}")
    return 0
