"""One row per loss: how to draw inputs, its oracle, its metric, its promises. `test_laws.py` runs
every law on every row.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import oracles
import oracles_direct_loss as ranking_oracles
import oracles_retrieval as retrieval_oracles
import oracles_smooth_topk as topk_oracles
import oracles_topk_rivals as rival_oracles
import torch
from torch import Tensor

import evalgrad as eg
from evalgrad import metrics

IGNORED = 255


@dataclass(frozen=True)
class Case:
    """A loss under test. Inputs are float64; items are the last axis of x and of target."""

    name: str
    loss: Callable[..., Tensor]
    module: Callable[..., torch.nn.Module]
    draw: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    oracle: Callable[..., Any]
    metric: Callable[[Tensor, Tensor], Tensor]  # 1 - metric of the predictions of x
    options: tuple[dict[str, Any], ...]  # each must change the value or the gradient
    perfect: Callable[[Tensor], Tensor]  # target -> x of a perfect, confident prediction
    # at confident predictions the loss equals 1 - metric; otherwise it is at least that
    equals_metric: bool
    fixed: dict[str, Any] = field(default_factory=dict)  # options that define the case
    # copies of the items that a kernel spreads over threads and torch, whose OpenMP hangs if
    # forked, not
    crowd: int = 5000
    # the value has no derivative of its own: the gradient theorem replaces gradcheck
    piecewise_constant: bool = False
    # further axes hold more items; False: the last axis holds the items, the others are lists
    axes_are_items: bool = True
    plain: bool = False  # torch operations alone, no operator of ours
    # the gradient is torch's own: it has derivatives in turn, and its threads hang in a forked
    # child
    autograd: bool = False
    forks: bool = True  # False: products of matrices, whose threads are torch's own and hang there
    checks_labels: bool = True  # False: the labels belong to a criterion, not to the loss
    has_ignore_index: bool = True  # False: it leaves items out by a mask
    # how the loss takes what is drawn, if its items are not on the last axis
    arrange: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda x, target: (x, target)
    # False: the scores are computed and ties in them rounded: they have tests of their own
    exact_ties: bool = True

    def __call__(self, x: Tensor, target: Tensor, **options: Any) -> Tensor:
        return self.loss(*self.arrange(x, target), **{**self.fixed, **options})

    def expected(self, x: Tensor, target: Tensor, **options: Any) -> Tensor:
        plain = {k: v.tolist() if isinstance(v, Tensor) else v for k, v in options.items()}
        return torch.tensor(self.oracle(x.tolist(), target.tolist(), **plain), dtype=torch.float64)

    def with_ignored(self, x: Tensor, target: Tensor, garbage: float) -> tuple[Tensor, Tensor]:
        """Two more items that do not count and hold garbage."""
        extra = torch.full((*x.shape[:-1], 2), garbage, dtype=x.dtype)
        labels = torch.full((*target.shape[:-1], 2), IGNORED, dtype=target.dtype)
        return torch.cat([x, extra], -1), torch.cat([target, labels], -1)

    def __str__(self) -> str:
        return self.name


def _integers(high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(high, shape, generator=generator)


def _draw_classes(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    n, c, s = (int(_integers(3, (), generator)) + 1 for _ in range(3))
    return 2 * torch.randn(n, c + 1, s + 2, dtype=torch.float64, generator=generator), _integers(
        c + 1, (n, s + 2), generator
    )


def _draw_samples(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Items are samples, classes on axis 1: 4 to 6 of them, so that k = 2 and k = 3 leave something
    to do.
    """
    n, c, s = (int(_integers(3, (), generator)) + 1 for _ in range(3))
    return 2 * torch.randn(n, c + 3, s + 2, dtype=torch.float64, generator=generator), _integers(
        c + 3, (n, s + 2), generator
    )


def _draw_binary(generator: torch.Generator, fewest: int = 2) -> tuple[Tensor, Tensor]:
    n, s = int(_integers(3, (), generator)) + 1, int(_integers(6, (), generator)) + fewest
    return 1.5 * torch.randn(n, s, dtype=torch.float64, generator=generator), _integers(
        2, (n, s), generator
    )


def _draw_multilabel(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, _ = _draw_classes(generator)
    return x, _integers(2, tuple(x.shape), generator)


def _one_hot(target: Tensor) -> Tensor:
    return (
        60.0
        * torch.nn.functional.one_hot(target, max(int(target.max()) + 1, 2)).movedim(-1, 1).double()
    )


def _sure(target: Tensor) -> Tensor:
    return 100.0 * torch.nn.functional.one_hot(target, 6).movedim(-1, 1).double()


def _weighted(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Weights for as many classes as were drawn."""
    return lambda x, target, weight=None, **o: loss(
        x, target, weight=None if weight is None else weight[: x.shape[1]], **o
    )


def _miou_loss(x: Tensor, target: Tensor) -> Tensor:
    return 1 - metrics.jaccard_index(x.argmax(1), target, num_classes=x.shape[1])


def _image_iou_loss(x: Tensor, target: Tensor) -> Tensor:
    return 1 - metrics.jaccard_index(
        (x > 0).long(), target, num_classes=2, over="image", classes=[1]
    )


def _multilabel_iou_loss(x: Tensor, target: Tensor) -> Tensor:
    return _image_iou_loss(x.flatten(0, 1), target.flatten(0, 1))


def _tversky_loss(**weights: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, target: (
        1 - metrics.tversky_index(x.argmax(1), target, num_classes=x.shape[1], **weights)
    )


def _image_dice_loss(x: Tensor, target: Tensor) -> Tensor:
    return 1 - metrics.dice((x > 0).long(), target, num_classes=2, over="image", classes=[1])


def _pixel_error(x: Tensor, target: Tensor) -> Tensor:
    return (x.argmax(1) != target).double().mean()


class Perceptron(torch.nn.Module):
    """An element-wise criterion with exact arithmetic: max(0, -score) of the true side."""

    reduction = "none"

    def __init__(self, ignore_index: int | None = None) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return torch.where(target == 1, -x, x).relu()


def _pooled_perceptron(
    x: Tensor, target: Tensor, ignore_index: int | None = None, **options: Any
) -> Tensor:
    mask = None if ignore_index is None else target != ignore_index
    return eg.loss_max_pooling(Perceptron()(x, target), mask=mask, **options)


def _by_mask(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that leaves items out by a mask, for laws that leave them out by a label."""

    def masked(
        x: Tensor, target: Tensor, ignore_index: int | None = None, **options: Any
    ) -> Tensor:
        if ignore_index is None:
            return loss(x, target, **options)
        mask = target != ignore_index
        return loss(x, torch.where(mask, target, 0), mask=mask, **options)

    return masked


def _draw_lists(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lists with a positive and a negative each: void ones have their own tests."""
    rows, n = int(_integers(3, (), generator)) + 1, int(_integers(6, (), generator)) + 2
    target = _integers(2, (rows, n), generator)
    target[:, 0], target[:, 1] = 1, 0
    return torch.randn(rows, n, dtype=torch.float64, generator=generator), target


def _draw_grades(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lists with grades 0 to 3, of which every list has two."""
    x, target = _draw_lists(generator)
    grades = _integers(4, tuple(x.shape), generator)
    return x, torch.where(torch.arange(x.shape[1]) < 2, 3 * target, grades)


def _graded_loss(scores: list[float], grades: list[float], gain="linear", k=None) -> float:
    gains = [2**g - 1 if gain == "exponential" else g for g in grades]
    return ranking_oracles.graded_model_loss(scores, gains, k)


def _ranked_by(target: Tensor) -> Tensor:
    """Scores far apart, positives above negatives: confident even for the perceptron, which knows
    no loss but the gaps.
    """
    return 10_000 * target.double() + 100.0 * torch.arange(target.shape[-1])


def _list_case(
    name: str, loss: Callable[..., Tensor], module: Any, value: Callable[..., float], **fields: Any
) -> Case:
    """A loss over lists of scored items."""
    oracle = ranking_oracles.over_lists(value)
    masks = {"axes_are_items": False, "has_ignore_index": False}
    return Case(name, _by_mask(loss), module, _draw_lists, oracle, **masks, **fields)


def _draw_embeddings(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``(1, D, N)`` with labels ``(1, N)``: 0, 0, 1 and others, so that some query counts."""
    n = int(_integers(5, (), generator)) + 3
    target = _integers(4, (1, n), generator)
    target[0, :3] = torch.tensor([0, 0, 1])
    return torch.randn(1, 3, n, dtype=torch.float64, generator=generator), target


def _items_first(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings ``(N, D)``; of one number per item a plane of them, where cosines have slopes."""
    if x.ndim == 1:
        x = torch.stack([x, torch.ones_like(x)])
    return x.transpose(-1, -2).reshape(-1, x.shape[-2]), target.flatten()


def _retrieval_loss(x: Tensor, target: Tensor) -> Tensor:
    """1 - AP of the queries with a positive and a negative."""
    scores, same, mask = metrics.retrieval_lists(*_items_first(x, target))
    live = (same & mask).any(1) & (~same & mask).any(1)
    rows = (rows[live] for rows in (scores, same, mask))
    scores, same, mask = rows
    return 1 - metrics.average_precision(scores, same, mask=mask, ties="worst").nan_to_num(1.0)


def _rank_loss(x: Tensor, target: Tensor) -> Tensor:
    return 1 - metrics.average_precision(x, target, ties="worst")


def _error_rate(x: Tensor, target: Tensor) -> Tensor:
    return (torch.where(target == 1, x, -x) <= 0).double().mean()


def _signs(target: Tensor) -> Tensor:
    return 120 * target.double() - 60


def _overlap_loss(
    x: Tensor,
    target: Tensor,
    misses: float = 1.0,
    false_alarms: float = 1.0,
    mode: str = "multiclass",
    per_image: bool = False,
) -> Tensor:
    """1 - the Tversky index of the hard prediction, the mean over what occurs in the target."""
    if mode == "multiclass":
        pairs = [(x.argmax(1) == c, target == c) for c in range(x.shape[1])]
    else:  # an axis of classes, or of images
        axis = 0 if per_image else 1
        pairs = list(zip((x > 0).unbind(axis), (target == 1).unbind(axis)))
    losses = [torch.zeros(0, dtype=torch.float64)]
    for predicted, true in pairs:
        if true.any():
            missed, alarms = (true & ~predicted).sum(), (predicted & ~true).sum()
            wrong = misses * missed.double() + false_alarms * alarms.double()
            losses.append((wrong / ((true & predicted).sum() + wrong)).unsqueeze(0))
    return torch.cat(losses).mean().nan_to_num(0.0)


SOFT_OPTIONS: tuple[dict[str, Any], ...] = (
    {"smooth": 1.0},
    {"ignore_index": 0},
    {"reduction": "sum"},
    {"reduction": "none"},
)


def _soft_case(
    name: str, loss: Any, module: Any, fixed: Any, defined: Any, *more: Any, **fields: Any
) -> Case:
    """A loss of probabilities; `defined` is what it is in the terms of the oracle."""
    choices = (
        {"classes": "all"},
        {"classes": [1]},
        {"weight": WEIGHT},
        {"per_image": True},
        {"per_image": True, "weight": WEIGHT, "classes": "all", "ignore_index": 1},
    )
    rest = {
        "draw": _draw_classes,
        "metric": partial(_overlap_loss, **defined),
        "perfect": _one_hot,
        "options": (*more, *choices, *SOFT_OPTIONS),
    }
    return Case(
        name,
        _weighted(loss),
        module,
        oracle=partial(oracles.soft_overlap, **defined),
        fixed=fixed,
        equals_metric=True,
        plain=True,
        autograd=True,
        **{**rest, **fields},
    )


def _rival_case(
    name: str, loss: Any, module: Any, oracle: Any, *more: Any, k: int = 2, **fixed: Any
) -> Case:
    """A top-k loss that smooth top-k is compared with."""
    fixed = {"k": k, **fixed}
    return Case(
        name,
        _weighted(loss),
        module,
        _draw_samples,
        partial(rival_oracles.over_samples, oracle, **fixed),
        partial(metrics.topk_error, k=k),
        (
            *more,
            {"k": 1},
            {"k": 5 - k},
            {"weight": SAMPLE_WEIGHT},
            {"ignore_index": 0},
            {"weight": SAMPLE_WEIGHT, "ignore_index": 1, "reduction": "none"},
            *REDUCTIONS,
        ),
        _sure,
        equals_metric=False,
        fixed=fixed,
        crowd=500,
        plain=True,
        autograd=True,
    )


STEPS = ({"epsilon": 0.1}, {"reduction": "sum"}, {"reduction": "none"})
REDUCTIONS = ({"reduction": "sum"}, {"reduction": "none"})
RANKING = {"perfect": _ranked_by, "metric": _rank_loss}
DECISION = {"perfect": _signs, "metric": _error_rate, "plain": True}
DIRECT = {"equals_metric": True, "piecewise_constant": True}

WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64)
SAMPLE_WEIGHT = torch.tensor([0.5, 2.0, 0.0, 3.0, 1.0, 0.25], dtype=torch.float64)

CASES = (
    Case(
        name="lovasz_softmax",
        loss=_weighted(eg.lovasz_softmax_loss),
        module=eg.LovaszSoftmaxLoss,
        draw=_draw_classes,
        oracle=oracles.lovasz_softmax,
        metric=_miou_loss,
        options=(
            {"classes": "all"},
            {"classes": [1]},
            {"per_image": True},
            {"weight": WEIGHT},
            {"ignore_index": 0},
            {"bins": 4},
            {"bins": 4, "reduction": "none"},
            {"reduction": "sum"},
            {"reduction": "none"},
            {"per_image": True, "weight": WEIGHT, "classes": "all", "ignore_index": 1},
        ),
        perfect=_one_hot,
        equals_metric=True,
    ),
    Case(
        name="lovasz_hinge",
        loss=eg.lovasz_hinge_loss,
        module=eg.LovaszHingeLoss,
        draw=_draw_binary,
        oracle=oracles.lovasz_hinge,
        metric=_image_iou_loss,
        options=(
            {"per_image": False},
            {"empty": "skip"},
            {"ignore_index": 0},
            {"gradient": "prox", "lam": 2.0},
            {"gradient": "prox", "lam": 0.5},
            {"bins": 4},
            {"bins": 4, "per_image": False, "ignore_index": 0},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=lambda target: 2.0 * target.double() - 1,
        equals_metric=False,
    ),
    Case(
        name="lovasz_hinge_multilabel",
        loss=eg.lovasz_hinge_loss,
        module=eg.LovaszHingeLoss,
        draw=_draw_multilabel,
        oracle=oracles.lovasz_hinge_multilabel,
        metric=_multilabel_iou_loss,
        options=({"per_image": False}, {"bins": 4}, {"reduction": "sum"}, {"reduction": "none"}),
        perfect=lambda target: 2.0 * target.double() - 1,
        equals_metric=False,
        fixed={"per_class": True},
    ),
    Case(
        name="lovasz_softmax_dice",
        loss=_weighted(eg.lovasz_softmax_loss),
        module=eg.LovaszSoftmaxLoss,
        draw=_draw_classes,
        oracle=partial(oracles.lovasz_softmax, metric="dice"),
        metric=_tversky_loss(misses=0.5, false_alarms=0.5),
        options=(
            {"metric": "jaccard"},
            {"metric": eg.Tversky(misses=0.7, false_alarms=0.3)},
            {"classes": "all"},
            {"per_image": True, "weight": WEIGHT, "classes": "all", "ignore_index": 1},
            {"bins": 4},
            {"bins": 4, "reduction": "none"},
            {"reduction": "none"},
        ),
        perfect=_one_hot,
        equals_metric=True,
        fixed={"metric": "dice"},
    ),
    Case(
        name="lovasz_softmax_tversky",
        loss=_weighted(eg.lovasz_softmax_loss),
        module=eg.LovaszSoftmaxLoss,
        draw=_draw_classes,
        oracle=partial(oracles.lovasz_softmax, metric=(2.0, 0.3)),
        metric=_tversky_loss(misses=2.0, false_alarms=0.3),
        options=({"bins": 4}, {"classes": "all"}, *REDUCTIONS),
        perfect=_one_hot,
        equals_metric=True,
        fixed={"metric": eg.Tversky(misses=2.0, false_alarms=0.3)},
    ),
    Case(
        name="lovasz_hinge_dice",
        loss=eg.lovasz_hinge_loss,
        module=eg.LovaszHingeLoss,
        draw=_draw_binary,
        oracle=partial(oracles.lovasz_hinge, metric="dice"),
        metric=_image_dice_loss,
        options=(
            {"metric": eg.Tversky(misses=2.0, false_alarms=0.3)},
            {"per_image": False},
            {"empty": "skip"},
            {"bins": 4},
            {"bins": 4, "per_image": False, "ignore_index": 0},
            *REDUCTIONS,
        ),
        perfect=lambda target: 2.0 * target.double() - 1,
        equals_metric=False,
        fixed={"metric": "dice"},
    ),
    Case(
        name="lovasz_hinge_multilabel_dice",
        loss=eg.lovasz_hinge_loss,
        module=eg.LovaszHingeLoss,
        draw=_draw_multilabel,
        oracle=partial(oracles.lovasz_hinge_multilabel, metric="dice"),
        metric=lambda x, target: _image_dice_loss(x.flatten(0, 1), target.flatten(0, 1)),
        options=({"bins": 4}, *REDUCTIONS),
        perfect=lambda target: 2.0 * target.double() - 1,
        equals_metric=False,
        fixed={"per_class": True, "metric": "dice"},
    ),
    Case(
        name="loss_max_pooling",
        checks_labels=False,
        has_ignore_index=False,
        loss=_pooled_perceptron,
        module=lambda **o: eg.LossMaxPooling(Perceptron(), **o),
        draw=partial(_draw_binary, fewest=1),
        oracle=oracles.pooled_perceptron,
        metric=_error_rate,
        options=(
            {"p": 1.0, "support": 0.5},
            {"p": 2.0},
            {"p": float("inf")},
            {"p": 1.001, "support": 0.3},
            {"support": 1.0},
            {"per_image": False},
            {"dim": 0},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_signs,
        equals_metric=False,
    ),
    Case(
        name="bootstrapped_cross_entropy",
        loss=_weighted(eg.bootstrapped_cross_entropy),
        module=eg.BootstrappedCrossEntropy,
        draw=_draw_classes,
        oracle=oracles.bootstrapped_cross_entropy,
        metric=_pixel_error,
        options=(
            {"k": 2},
            {"k": 0.7},
            {"threshold": 0.3, "k": 1},
            {"threshold": 0.9, "k": 0.5},
            {"per_image": False},
            {"ignore_index": 0},
            {"weight": WEIGHT, "k": 2},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_one_hot,
        equals_metric=False,
        plain=True,
        autograd=True,
    ),
    _soft_case("soft_jaccard", eg.soft_jaccard_loss, eg.SoftJaccardLoss, {}, {}),
    _soft_case(
        "soft_dice",
        eg.soft_dice_loss,
        eg.SoftDiceLoss,
        {},
        {"misses": 0.5, "false_alarms": 0.5},
    ),
    _soft_case(
        "soft_tversky",
        eg.soft_tversky_loss,
        eg.SoftTverskyLoss,
        {"misses": 1.5, "false_alarms": 0.4},
        {"misses": 1.5, "false_alarms": 0.4},
        {"misses": 0.2},
        {"false_alarms": 0.0},
    ),
    _soft_case(
        "soft_jaccard_binary",
        eg.soft_jaccard_loss,
        eg.SoftJaccardLoss,
        {"mode": "binary", "per_image": True},
        {"mode": "binary", "per_image": True},
        draw=_draw_binary,
        perfect=_signs,
        options=({"classes": "all"}, {"per_image": False}, *SOFT_OPTIONS),
    ),
    _soft_case(
        "soft_dice_multilabel",
        eg.soft_dice_loss,
        eg.SoftDiceLoss,
        {"mode": "multilabel"},
        {"mode": "multilabel", "misses": 0.5, "false_alarms": 0.5},
        draw=_draw_multilabel,
        perfect=_signs,
    ),
    Case(
        name="focal",
        loss=_weighted(eg.focal_loss),
        module=eg.FocalLoss,
        draw=_draw_classes,
        oracle=oracles.focal,
        metric=_pixel_error,
        options=(
            {"gamma": 0.0},
            {"gamma": 0.5, "ignore_index": 1},
            {"ignore_index": 0},
            {"weight": WEIGHT},
            {"weight": WEIGHT, "reduction": "none"},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_one_hot,
        equals_metric=False,
        plain=True,
        autograd=True,
    ),
    Case(
        name="focal_binary",
        loss=eg.focal_loss,
        module=eg.FocalLoss,
        draw=_draw_binary,
        oracle=partial(oracles.focal, mode="binary"),
        metric=_error_rate,
        options=(
            {"gamma": 0.5},
            {"alpha": 0.25},
            {"alpha": 0.75, "reduction": "none"},
            {"ignore_index": 0},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_signs,
        equals_metric=False,
        fixed={"mode": "binary"},
        plain=True,
        autograd=True,
    ),
    Case(
        name="smooth_topk",
        loss=_weighted(eg.smooth_topk_loss),
        module=eg.SmoothTopKLoss,
        draw=_draw_samples,
        oracle=partial(topk_oracles.smooth_topk, k=2),
        metric=partial(metrics.topk_error, k=2),
        options=(
            {"k": 1},
            {"k": 3},
            {"temperature": 0.2},
            {"temperature": 10.0, "margin": 0.0},
            {"margin": 3.0},
            {"weight": SAMPLE_WEIGHT},
            {"ignore_index": 0},
            {"weight": SAMPLE_WEIGHT, "ignore_index": 1, "temperature": 0.5},
            {"weight": SAMPLE_WEIGHT, "reduction": "none"},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_sure,
        equals_metric=False,
        fixed={"k": 2},
        crowd=500,
    ),
    Case(
        name="topk_hinge",
        loss=_weighted(eg.topk_hinge_loss),
        module=eg.TopKHingeLoss,
        draw=_draw_samples,
        oracle=partial(topk_oracles.topk_hinge, k=2),
        metric=partial(metrics.topk_error, k=2),
        options=(
            {"k": 1},
            {"k": 3},
            {"margin": 0.0},
            {"weight": SAMPLE_WEIGHT},
            {"ignore_index": 0},
            {"weight": SAMPLE_WEIGHT, "ignore_index": 1, "reduction": "none"},
            {"reduction": "sum"},
            {"reduction": "none"},
        ),
        perfect=_sure,
        equals_metric=False,
        fixed={"k": 2},
        crowd=500,
    ),
    _rival_case(
        "topk_svm",
        eg.topk_svm_loss,
        eg.TopKSVMLoss,
        rival_oracles.svm,
        {"variant": "beta"},
        {"margin": 0.3},
        k=3,  # with one guess or two both variants are the same
    ),
    _rival_case(
        "topk_svm_beta", eg.topk_svm_loss, eg.TopKSVMLoss, rival_oracles.svm, k=3, variant="beta"
    ),
    _rival_case(
        "topk_entropy",
        eg.topk_entropy_loss,
        eg.TopKEntropyLoss,
        rival_oracles.entropy,
        {"truncated": True},
    ),
    _rival_case(
        "topk_entropy_truncated",
        eg.topk_entropy_loss,
        eg.TopKEntropyLoss,
        rival_oracles.entropy,
        truncated=True,
    ),
    _rival_case(
        "sorting_network_topk",
        eg.sorting_network_topk_loss,
        eg.SortingNetworkTopKLoss,
        rival_oracles.sorting_network,
        {"temperature": 0.3},
        {"candidates": 4},
        {"candidates": 4, "k": 3, "temperature": 2.0},
    ),
    _list_case(
        "direct_average_precision",
        eg.direct_average_precision_loss,
        eg.DirectAveragePrecisionLoss,
        ranking_oracles.model_loss,
        options=({"direction": "negative"}, *STEPS),
        fixed={"epsilon": 1.0},
        **RANKING,
        **DIRECT,
    ),
    _list_case(
        "direct_average_precision_negative",
        eg.direct_average_precision_loss,
        eg.DirectAveragePrecisionLoss,
        ranking_oracles.model_loss,
        options=({"direction": "positive"}, *STEPS),
        fixed={"epsilon": 1.0, "direction": "negative"},
        **RANKING,
        **DIRECT,
    ),
    Case(
        name="retrieval_average_precision",
        loss=_by_mask(eg.retrieval_average_precision_loss),
        module=eg.RetrievalAveragePrecisionLoss,
        draw=_draw_embeddings,
        oracle=retrieval_oracles.value,
        metric=_retrieval_loss,
        options=(
            {"similarity": "dot"},
            {"direction": "negative"},
            {"similarity": "dot", "direction": "negative", "epsilon": 3.0},
            {"epsilon": 1.0},
            *REDUCTIONS,
        ),
        perfect=lambda target: 10 * torch.nn.functional.one_hot(target, 4).mT.double(),
        crowd=40,
        axes_are_items=False,
        has_ignore_index=False,
        checks_labels=False,  # every integer is a label
        arrange=_items_first,
        forks=False,
        exact_ties=False,
        **DIRECT,
    ),
    _list_case(
        "direct_ndcg",
        eg.direct_ndcg_loss,
        eg.DirectNDCGLoss,
        lambda scores, target, k=None: ranking_oracles.model_loss(scores, target, "ndcg", k),
        options=({"direction": "negative"}, {"k": 2}, {"k": 1, "direction": "negative"}, *STEPS),
        fixed={"epsilon": 1.0},
        perfect=_ranked_by,
        metric=lambda x, target: 1 - metrics.ndcg(x, target, ties="worst"),
        **DIRECT,
    ),
    Case(
        name="direct_graded_ndcg",
        loss=_by_mask(eg.direct_graded_ndcg_loss),
        module=eg.DirectGradedNDCGLoss,
        draw=_draw_grades,
        oracle=ranking_oracles.over_lists(_graded_loss, float),
        options=(
            {"direction": "negative"},
            {"gain": "exponential"},
            {"k": 2},
            {"k": 1, "direction": "negative"},
            *STEPS,
        ),
        fixed={"epsilon": 1.0},
        perfect=_ranked_by,
        metric=lambda x, target: 1 - metrics.ndcg(x, target, ties="worst"),
        axes_are_items=False,
        has_ignore_index=False,
        checks_labels=False,  # every label of at least 0 is a grade
        **DIRECT,
    ),
    _list_case(
        "direct_jaccard",
        eg.direct_jaccard_loss,
        eg.DirectJaccardLoss,
        lambda scores, target: float(ranking_oracles.jaccard_of([s > 0 for s in scores], target)),
        options=({"direction": "negative"}, *STEPS),
        fixed={"epsilon": 1.0},
        perfect=_signs,
        metric=_image_iou_loss,
        **DIRECT,
    ),
    _list_case(
        "direct_zero_one",
        eg.direct_zero_one_loss,
        eg.DirectZeroOneLoss,
        lambda scores, target: ranking_oracles.direct_zero_one(scores, target, 1.0, 1)[0],
        options=({"direction": "negative"}, *STEPS),
        fixed={"epsilon": 2.0},
        **DECISION,
        **DIRECT,
    ),
    _list_case(
        "average_precision_hinge",
        eg.average_precision_hinge_loss,
        eg.AveragePrecisionHingeLoss,
        lambda scores, target: ranking_oracles.ap_hinge(scores, target)[0],
        options=REDUCTIONS,
        equals_metric=False,
        **RANKING,
    ),
    _list_case(
        "average_precision_perceptron",
        eg.average_precision_perceptron_loss,
        eg.AveragePrecisionPerceptronLoss,
        ranking_oracles.ap_perceptron,
        options=REDUCTIONS,
        equals_metric=False,
        **RANKING,
    ),
    _list_case(
        "zero_one_hinge",
        eg.zero_one_hinge_loss,
        eg.ZeroOneHingeLoss,
        lambda scores, target: ranking_oracles.zero_one_bound(scores, target, 1.0),
        options=REDUCTIONS,
        equals_metric=False,
        **DECISION,
    ),
    _list_case(
        "zero_one_perceptron",
        eg.zero_one_perceptron_loss,
        eg.ZeroOnePerceptronLoss,
        lambda scores, target: ranking_oracles.zero_one_bound(scores, target, 0.0),
        options=REDUCTIONS,
        equals_metric=False,
        **DECISION,
    ),
)
