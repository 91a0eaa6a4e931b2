"""Frozen batch normalisation for fine-tuning with small batches, whose statistics are too noisy."""

from torch import nn


class FrozenBatchNorm(nn.modules.batchnorm._BatchNorm):
    """A batch normalisation whose statistics and parameters do not change in training."""

    def train(self, mode: bool = True) -> "FrozenBatchNorm":
        return super().train(False)


def freeze_batch_norm(network: nn.Module) -> None:
    """Neither the running means nor the factors of any batch normalisation change any more. The
    layers stay what they are, so that the names of the weights do.
    """
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            kind = type(layer)
            frozen = type(f"Frozen{kind.__name__}", (FrozenBatchNorm, kind), {})
            object.__setattr__(layer, "__class__", frozen)
            layer.requires_grad_(False).eval()
