"""The extra node of the paper's experiments: predict whether the object in an image is large, next
to the main task.

`SizeHead` puts one score per image on any feature map; the labels s come from the training masks,
by the mean foreground size (experiments 1 and 2) or by a volume threshold per class and the vote of
the classes present (experiment 3).

The head only matters where it shares parameters with the main task: next to a linear classifier it
changes nothing.
"""

import torch
from torch import Tensor, nn

from evalgrad._options import integer


class SizeHead(nn.Module):
    """Scores (N,) for two size groups, (N, groups) for more, from features (N, D) or (N, D, *)
    averaged over space.
    """

    def __init__(self, in_features: int, groups: int = 2) -> None:
        super().__init__()
        integer(2, repair="Use 2 for small and large.")("SizeHead", "groups", groups)
        self.node = nn.Linear(in_features, 1 if groups == 2 else groups)

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim < 2 or features.shape[1] != self.node.in_features:
            raise ValueError(
                f"SizeHead: `features` must be (N, {self.node.in_features}, *); got"
                f" {tuple(features.shape)}. Build the head with the channel count of the layer it"
                " reads."
            )
        return self.node(features.flatten(2).mean(-1) if features.ndim > 2 else features).squeeze(
            -1
        )


class SizeLabels(nn.Module):
    """Size labels of masks: 1 where the foreground is larger than the mean foreground of the
    training masks.

    `fit` takes the mean over training masks (n, *), bool or any dtype with foreground != 0; calling
    gives (n,) int64 labels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(torch.nan, dtype=torch.float64))

    def fit(self, masks: Tensor) -> "SizeLabels":
        self.threshold = _area(masks).mean()
        return self

    def forward(self, masks: Tensor) -> Tensor:
        if bool(self.threshold.isnan()):
            raise ValueError(
                "SizeLabels: `threshold` must be fitted; got none. Call `fit(training_masks)`"
                " first."
            )
        return (_area(masks) > self.threshold).long()


def majority_size_labels(
    target: Tensor,
    *,
    classes: int,
    threshold: float | Tensor = 0.05,
    ignore_index: int | None = None,
) -> Tensor:
    """1 where most classes present in a label map are large: more than half of them cover more than
    `threshold`.

    Args:
        target: (N, *) class of every pixel.
        classes: number of classes.
        threshold: share of the counted pixels above which a class is large, one number or
            (classes,) one per class.
        ignore_index: label left out of the volumes and of the pixel count.

    Returns:
        (N,) int64. An even vote, and an image without a counted pixel, is small (0).
    """
    flat = target.reshape(len(target), -1).long()
    counted = (
        torch.ones_like(flat, dtype=torch.bool) if ignore_index is None else flat != ignore_index
    )
    if bool((counted & ((flat < 0) | (flat >= classes))).any()):
        raise ValueError(
            f"majority_size_labels: `target` must lie in 0..{classes - 1}; got {int(flat.min())} to"
            f" {int(flat.max())}. Set `ignore_index`."
        )
    volume = torch.zeros(len(flat), classes, dtype=torch.float64, device=flat.device)
    volume.scatter_add_(1, torch.where(counted, flat, 0), counted.double())
    share = volume / counted.sum(1, keepdim=True).clamp_min(1)
    large = (share > torch.as_tensor(threshold, dtype=torch.float64, device=flat.device)).sum(1)
    return (2 * large > (volume > 0).sum(1)).long()


def _area(masks: Tensor) -> Tensor:
    if masks.ndim < 2:
        raise ValueError(
            f"SizeLabels: `masks` must be (N, *), one mask per image; got {tuple(masks.shape)}. Add"
            " a batch axis."
        )
    return (masks != 0).flatten(1).sum(1).double()
