"""The Lovász-Softmax loss: a surrogate of 1 - mean IoU for multi-class segmentation.

The errors of class c are 1 - p_c on its own pixels and p_c elsewhere; the loss of the class is the
Lovász extension of its Jaccard loss at these errors, and the loss is the mean over the classes.
Over a batch it follows the IoU of the dataset, per image the mean IoU of the images. Berman, Rannen
Triki, Blaschko: The Lovász-Softmax loss, CVPR 2018. Other metrics of the same kind, Dice for one,
may take the place of the Jaccard index.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._inputs import WORKING, ClassMaps, Weight, class_maps
from evalgrad._module import LossModule
from evalgrad._options import Classes, Reduction, checked
from evalgrad._rows import attach, class_factor, working
from evalgrad.lovasz.bins import bin_weights, check_bins, columns_of, count, look_up
from evalgrad.lovasz.class_maps import by_class, errors_of, probabilities, value_and_gradient
from evalgrad.lovasz.extension import INTEGERS, extend, parts, signed_weights
from evalgrad.lovasz.metric import METRICS, Metric, metric_choice
from evalgrad.lovasz.softmax_bins import binned


@checked(metric=metric_choice)
def lovasz_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    bins: int | None = None,
    metric: Metric = "jaccard",
    reduction: Reduction = "mean",
) -> Tensor:
    """Lovász-Softmax loss of raw class scores.

    Limits of exactness: the float32 kernel on CPU compares errors in units of 2^-22, about what
    float32 resolves of a probability, and treats closer ones as tied. From 65,536 pixels on it may
    count the errors of a class in fine bins instead of sorting them; the value then stays that of a
    sort to the last digits, and the number of bins is chosen so that the gradient is expected
    within 3e-5 of the exact one, as a norm. float64, other devices and builds without the kernels
    sort. docs/lovasz.md has the tests.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2, any number of spatial dimensions.
        target: ``(N, *)`` or ``(N, 1, *)`` class indices, of any integer dtype. Soft targets raise
            an error: the Jaccard index is a function of sets.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. The loss of a class that is averaged but not in the
            target is its largest error.
        per_image: if False, the batch is one group, a proxy for the IoU over the dataset; if True,
            every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        bins: None for the exact loss; K groups the errors into K equal bins instead of sorting
            them: the value is then within 1/K of the exact one; the gradient is close for classes
            with many pixels, and can be off by a few percent for a class with a few dozen.
        metric: ``"jaccard"`` | ``"dice"`` | ``Tversky(misses=, false_alarms=)``: the metric to
            optimise. The loss equals 1 - metric if every probability is 0 or 1.
        reduction: ``"mean"``: the weighted mean over the classes of each group, then the mean over
            the groups that are not entirely ignored; ``"sum"``: the weighted sum; ``"none"``:
            ``(groups, C)`` weighted losses, 0 for classes that are not averaged.

    Example:
        >>> import torch
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> target = torch.randint(21, (2, 8, 8))
        >>> lovasz_softmax_loss(logits, target, ignore_index=255).backward()
    """
    maps = class_maps(
        "lovasz_softmax_loss",
        logits,
        target,
        per_image=per_image,
        ignore_index=ignore_index,
        weight=weight,
        classes=classes,
    )
    factor = class_factor(maps, classes, reduction)
    weights = METRICS.get(metric, metric)
    if reduction == "none":
        return _class_losses(maps, bins, *weights) * factor
    if bins is None:
        value, gradient = _exact(working(maps.x), maps.label, factor, *weights)
    else:
        value, gradient = binned(working(maps.x), maps.label, factor, bins, *weights)
    return attach(maps.x, value, gradient, reduction, invalid=maps.invalid)


class LovaszSoftmaxLoss(LossModule):
    """`lovasz_softmax_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. The loss of a class that is averaged but not in the
            target is its largest error.
        per_image: if False, the batch is one group, a proxy for the IoU over the dataset; if True,
            every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        bins: None for the exact loss; K groups the errors into K equal bins instead of sorting
            them: the value is then within 1/K of the exact one; the gradient is close for classes
            with many pixels, and can be off by a few percent for a class with a few dozen.
        metric: ``"jaccard"`` | ``"dice"`` | ``Tversky(misses=, false_alarms=)``: the metric to
            optimise. The loss equals 1 - metric if every probability is 0 or 1.
        reduction: ``"mean"``: the weighted mean over the classes of each group, then the mean over
            the groups that are not entirely ignored; ``"sum"``: the weighted sum; ``"none"``:
            ``(groups, C)`` weighted losses, 0 for classes that are not averaged.

    Example:
        >>> loss = LovaszSoftmaxLoss(ignore_index=255)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(lovasz_softmax_loss)

    def __init__(
        self,
        *,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Weight = None,
        bins: int | None = None,
        metric: Metric = "jaccard",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def _class_losses(maps: ClassMaps, bins: int | None, misses: float, false_alarms: float) -> Tensor:
    """Loss of every class by itself, ``(G, C)``, by autograd through the softmax.

    The operators scale all classes by one factor in the forward pass; here each class has a
    derivative of its own.
    """
    x = maps.x.to(WORKING[maps.x.dtype])
    errors, foreground, mask = by_class(x, maps.label)
    if bins is None:
        return extend(errors, foreground, mask, misses, false_alarms)
    check_bins("lovasz_softmax_loss", x, errors.shape[:2].numel(), bins)
    columns = columns_of(errors.detach(), foreground, bins).masked_fill(~mask, 2 * bins)
    table = bin_weights(count(columns, bins), misses, false_alarms).to(errors.dtype)
    return (errors * look_up(table, columns)).sum(-1)


# ---- operator: x (G, M, C, S), label (G, M, S), factor (G, C) -> value (G,), gradient in x -------


def _pure(
    x: Tensor, label: Tensor, factor: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    p = probabilities(x, label)
    slopes = x.new_empty(x.shape[0], x.shape[2], label.shape[1:].numel())
    for part in parts(x.shape[2], 8):
        errors, front = errors_of(p, label, part)
        # Errors in [0, 1] have the order of their bits; foreground is the last bit of a key.
        bits = errors.view(INTEGERS[errors.dtype])
        key, order = torch.add(front, bits, alpha=2).sort(dim=-1, descending=True)
        slope = signed_weights(key.bitwise_and_(1).bool(), misses, false_alarms, x.dtype)
        slopes[:, part].scatter_(-1, order, slope.mul_(factor[:, part].unsqueeze(-1)))
    return value_and_gradient(p, slopes, label)


def _kernel(
    x: Tensor, label: Tensor, factor: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    metric = (misses, false_alarms)
    if x[:1].numel() >= 2**31:  # a kernel key has 31 bits for the place in a group
        return _pure(x, label, factor, *metric)
    value, gradient = _native.empty_results(x)
    _native.call("lovasz_softmax", x, label, factor, *x.shape, 0, *metric, value, gradient)
    return value, gradient


_exact = _native.operator(
    "lovasz_softmax(Tensor x, Tensor label, Tensor factor, float misses, float false_alarms) ->"
    " (Tensor, Tensor)",
    pure=_pure,
    native=_kernel,
    triton="lovasz",
)
