"""An additional output that separates large from small foregrounds, trained with its F1 as a
regulariser of the main loss (S-measures, section 4): it shares features with the segmentation.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import BatchLoss, Phase
from evalgrad_lab.given import Given
from evalgrad_lab.models.weights import head_of

LARGE = 0.05  # share of the pixels above which a class among several is large


class SizeNode(nn.Module):
    """The main loss, and `alpha` times the F-beta loss of a `SizeHead` on what the last layer of
    the network takes in. The node is part of the loss: the network is saved without it.
    """

    labels: Tensor

    def __init__(self, loss: BatchLoss, network: nn.Module, labels: Tensor, alpha: float) -> None:
        super().__init__()
        self.loss, self.alpha = loss, alpha
        self.measure = eg.FBeta(labels=labels)
        self.register_buffer("labels", labels, persistent=False)
        weights = [name for name, _ in network.named_parameters() if name.endswith("weight")]
        last = network.get_submodule(
            [name for name in weights if name in head_of(network)][-1].rpartition(".")[0]
        )
        channels = getattr(last, "in_channels", None) or getattr(last, "in_features", None)
        if channels is None:
            raise UserError(
                "--size-node is for networks that end in a convolution or a linear layer; got"
                f" {type(last).__name__}. Drop it."
            )
        self.head = eg.SizeHead(channels)
        last.register_forward_pre_hook(self._see)
        self.seen = [torch.empty(0)]  # a list: a tensor of the graph is no part of the state

    def _see(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.seen[0] = inputs[0]

    def forward(self, output: Any, batch: Batch) -> Tensor:
        size = self.measure(self.head(self.seen[0]), self.labels[batch.index], index=batch.index)
        return self.loss(output, batch) + self.alpha * size


def with_size_node(phase: Phase, network: nn.Module, labels: Tensor, alpha: float) -> Phase:
    """The phase with the node beside its loss."""
    node = SizeNode(phase.loss, network, labels, alpha)
    return replace(phase, loss=node, parameters=list(node.parameters()))


def check_size_node(options: TrainOptions) -> None:
    """The node sees one pass of one process, and reads masks."""
    ranks = options.devices * options.num_nodes
    if options.size_node and options.task != "segmentation":
        raise UserError(f"--size-node is for segmentation; --task is {options.task}. Drop it.")
    if options.size_node and (options.accumulate > 1 or options.compile or ranks > 1):
        raise UserError(
            "--size-node takes neither --accumulate nor --compile nor several --devices. Drop them."
        )


def size_labels(given: Given) -> Tensor:
    """1 for images with more foreground than the mean of all; of more than two classes, for those
    most of whose classes are large.
    """
    target, count = given.train.target, given.num_classes
    assert target is not None
    places, rule = range(len(given.train)), eg.SizeLabels()
    if count == 2:
        for i in places:
            rule.partial_fit(target[i][None] == 1)
        labels = torch.cat([rule(target[i][None] == 1) for i in places])
    else:
        how: Any = {"classes": count, "threshold": LARGE, "ignore_index": given.ignore_index}
        labels = torch.cat([eg.majority_size_labels(target[i][None], **how) for i in places])
    if len(labels.unique()) < 2:
        raise UserError(
            "--size-node needs training images of both sizes; all have the same. Increase --limit,"
            " or drop it."
        )
    return labels
