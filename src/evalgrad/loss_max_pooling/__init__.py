"""Loss max-pooling: the public functions and the operator beneath them."""

from evalgrad.loss_max_pooling.pooling import (
    LossMaxPooling,
    loss_max_pooling,
    loss_max_pooling_weights,
)

__all__ = ["LossMaxPooling", "loss_max_pooling", "loss_max_pooling_weights"]
