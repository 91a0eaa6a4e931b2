"""Implements `evalgrad export`: the network and its decision rule as one torch.export program."""

import importlib.util
import io
import logging
import warnings

import torch
from torch import Tensor, nn

from evalgrad_lab import saved
from evalgrad_lab.commands.export import ExportOptions, ExportResult
from evalgrad_lab.decisions import Decision, one_score, plain
from evalgrad_lab.errors import UserError
from evalgrad_lab.phases import shaped
from evalgrad_lab.store import write_atomically


class Decided(nn.Module):
    """Inputs as they are in the data -> labels and probabilities.

    Labels are the classes ``(N, *)`` that the decision of the run gives; of a multilabel task, 0 or
    1 for each label. Probabilities are of every class ``(N, C, *)``; of a network with one output,
    and of labels, those of 1, shaped as the labels.
    """

    def __init__(self, network: nn.Module, kind: str, decision: Decision | None) -> None:
        super().__init__()
        self.network, self.kind = network, kind
        self.of_classes = kind in ("segmentation", "classification")
        self.decision = decision or plain(of_one_score=not self.of_classes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        scores = shaped(self.network(inputs), self.kind)
        chances = scores.softmax(1) if self.of_classes else scores.sigmoid()
        if self.of_classes and self.decision.of_one_score:
            scores = one_score(scores, scores.ndim - 1)
        return self.decision(scores), chances


def write(options: ExportOptions) -> ExportResult:
    """Write the program; it takes any number of inputs of one size."""
    description, network = saved.read(options.run, options.trust_model)
    shape = _shape(options, description)
    decision, note = exportable(description.decision)
    order = f"the inputs are the columns of {options.run / 'model.json'}, in their order"
    note = "; ".join(filter(None, [order if description.columns else "", note]))
    model = Decided(network, description.kind, decision).eval()
    example = torch.rand(2, *shape)
    batch = {"inputs": {0: torch.export.Dim("batch")}}
    buffer = io.BytesIO()
    try:
        program = torch.export.export(model, (example,), dynamic_shapes=batch)
    except Exception as error:  # what a network's code makes torch.export raise
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"torch.export cannot run {description.model} on inputs of the shape {shape}:"
            f" {reason}. Pass --size HEIGHT,WIDTH if the model takes images, and only then."
        ) from error
    if options.format == "pt2":
        torch.export.save(program, buffer)
    else:
        buffer.write(_onnx(program))
    write_atomically(options.out, buffer.getvalue())
    return ExportResult(options.out, shape, note)


def exportable(decision: Decision | None) -> tuple[Decision | None, str]:
    """What decides in a program, and a note where it is not what decides in the lab."""
    if decision is None or not decision.rule.endswith("_mask"):
        return decision, ""
    cut = Decision("threshold", decision.numbers)
    return cut, (
        f"its labels are those of the threshold {cut.numbers[0]:g}, the next best on validation:"
        f" {decision.rule}, which `evalgrad predict` uses, cannot be exported"
    )


def _shape(options: ExportOptions, description: saved.Description) -> tuple[int, ...]:
    if options.size is None:
        return (description.inputs,)
    sides = [int(side) for side in options.size]
    if len(sides) != 2 or min(sides) < 1 or sides != list(options.size):
        raise UserError(f"--size must be two numbers of pixels such as 64,64; got {options.size}.")
    return (description.inputs, *sides)


def _onnx(program: torch.export.ExportedProgram) -> bytes:
    if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript")):
        raise UserError(
            "--format onnx needs onnx and onnxscript: pip install '.[onnx]' in a clone of evalgrad."
        )
    outputs = ["labels", "probabilities"]
    # the exporter warns of itself, and logs that torchvision, which nothing here needs, is missing
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["inputs"], output_names=outputs
        )
    assert made is not None
    content: bytes = made.model_proto.SerializeToString()
    return content
