"""Cost of every loss on small, middle and large tensors, forward and backward, against the usual
loss on the same tensor: `python benchmarks/sizes.py`. README's table is written from it.
"""

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from lovasz import binary_maps, maps
from references import losses_of_smp
from timing import interleaved, main, step
from torch import Tensor

import evalgrad as eg

SIZES = ("small", "middle", "large")
TRAINED = 3.0  # half-trained: what most of a training looks like
BUDGET = 0.5  # seconds of each row
TVERSKY = eg.Tversky(misses=0.7, false_alarms=0.3)


def softmax_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    logits, target = maps(shape, TRAINED)
    pixel_losses = torch.nn.CrossEntropyLoss(reduction="none")
    losses = {
        "lovasz_softmax_loss": eg.LovaszSoftmaxLoss(),
        "lovasz_softmax_loss(bins=4096)": eg.LovaszSoftmaxLoss(bins=4096),
        "lovasz_softmax_loss(metric=dice)": eg.LovaszSoftmaxLoss(metric="dice"),
        "lovasz_softmax_loss(metric=Tversky)": eg.LovaszSoftmaxLoss(metric=TVERSKY),
        "LossMaxPooling": eg.LossMaxPooling(pixel_losses),
    }
    return compare(size, F.cross_entropy, losses, logits, target)


def soft_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    logits, target = maps(shape, TRAINED)
    losses: dict[str, Callable[..., Tensor]] = {
        "soft_jaccard_loss": eg.SoftJaccardLoss(),
        "soft_dice_loss": eg.SoftDiceLoss(),
        "soft_tversky_loss": eg.SoftTverskyLoss(),
        "focal_loss": eg.FocalLoss(),
        **peers(),
    }
    one_hot = F.one_hot(target, shape[1]).movedim(-1, 1).to(logits)
    losses["soft_dice_loss, one-hot"] = lambda x, _: eg.soft_dice_loss(x, one_hot)
    return compare(size, F.cross_entropy, losses, logits, target)


def peers() -> dict[str, Callable[..., Tensor]]:
    """What others have for the same, where it is installed; what is not is said."""
    found: dict[str, Callable[..., Tensor]] = {}
    try:
        smp = losses_of_smp()
        found["smp.losses.JaccardLoss"] = smp.JaccardLoss("multiclass")
        found["smp.losses.DiceLoss"] = smp.DiceLoss("multiclass")
    except ImportError as error:
        print(f"segmentation_models_pytorch is left out: {error}", file=sys.stderr)
    try:
        from monai.losses import DiceLoss

        monai = DiceLoss(softmax=True, to_onehot_y=True, batch=True)
        found["monai.losses.DiceLoss"] = lambda x, y: monai(x, y.unsqueeze(1))
    except ImportError as error:
        print(f"MONAI is left out: {error}", file=sys.stderr)
    return found


def hinge_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    logits, target = binary_maps(shape, TRAINED)
    losses = {
        "lovasz_hinge_loss": eg.LovaszHingeLoss(),
        "lovasz_hinge_loss(bins=4096)": eg.LovaszHingeLoss(bins=4096),
        "lovasz_hinge_loss(metric=dice)": eg.LovaszHingeLoss(metric="dice"),
        "lovasz_hinge_loss(metric=Tversky)": eg.LovaszHingeLoss(metric=TVERSKY),
    }
    return compare(size, _bce, losses, logits, target)


def topk_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator)
    target = torch.randint(shape[1], shape[:1], generator=generator)
    losses = {
        "smooth_topk_loss": eg.SmoothTopKLoss(),
        "topk_hinge_loss": eg.TopKHingeLoss(),
        "topk_svm_loss": eg.TopKSVMLoss(),
        "topk_entropy_loss": eg.TopKEntropyLoss(),
        "sorting_network_topk_loss": eg.SortingNetworkTopKLoss(),
    }
    return compare(size, F.cross_entropy, losses, scores, target)


def list_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator)
    target = torch.rand(shape, generator=generator) < 0.1
    target[..., 0] = True
    grades = (target * torch.randint(1, 5, shape, generator=generator)).squeeze(0)
    losses: dict[str, Callable[..., Tensor]] = {
        "direct_average_precision_loss": eg.DirectAveragePrecisionLoss(),
        "direct_ndcg_loss": eg.DirectNDCGLoss(),
        "direct_graded_ndcg_loss": lambda x, _: eg.direct_graded_ndcg_loss(x, grades),
        "FBeta": eg.FBeta(),
    }
    return compare(size, _bce, losses, scores.squeeze(0), target.squeeze(0))


def embedding_rows(size: str, shape: tuple[int, ...]) -> list[dict[str, object]]:
    """Against cross-entropy over the same cosines, what contrastive losses are made of."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(shape, generator=generator)
    labels = torch.arange(shape[0]) // 4  # four of each
    losses = {"retrieval_average_precision_loss": eg.RetrievalAveragePrecisionLoss(epsilon=0.01)}
    return compare(size, _contrastive, losses, embeddings, labels)


def _contrastive(x: Tensor, labels: Tensor) -> Tensor:
    e = F.normalize(x)
    partner = torch.arange(len(x)) ^ 1
    return F.cross_entropy((e @ e.T).fill_diagonal_(-torch.inf), partner)


def _bce(x: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target.to(x))


def compare(
    size: str,
    yardstick: Callable[..., Tensor],
    losses: dict[str, Callable[..., Tensor]],
    x: Tensor,
    target: Tensor,
) -> list[dict[str, object]]:
    """A row per loss; all of them and the yardstick in turn, as often as the budget allows."""
    steps = {
        name: step(lambda z, loss=loss: loss(z, target), x)
        for name, loss in {"yardstick": yardstick, **losses}.items()
    }
    start = time.perf_counter()
    for run in steps.values():
        run()
        run()
    once = (time.perf_counter() - start) / 2
    times = interleaved(steps, rounds=max(7, min(2000, int(BUDGET * len(steps) / once))))
    usual = times.pop("yardstick")
    shape = "x".join(map(str, x.shape))
    return [
        {"loss": name, "size": size, "shape": shape, "usual us": 1e6 * usual, "x": seconds / usual}
        for name, seconds in times.items()
    ]


SHAPES: dict[Callable[..., list[dict[str, object]]], tuple[tuple[int, ...], ...]] = {
    softmax_rows: ((2, 21, 64, 64), (2, 21, 256, 256), (4, 21, 512, 512)),
    soft_rows: ((8, 5, 64, 64), (8, 5, 256, 256), (8, 5, 512, 512)),
    hinge_rows: ((4, 64, 64), (4, 256, 256), (8, 512, 512)),
    topk_rows: ((256, 100), (256, 1000), (256, 10000)),
    list_rows: ((1, 256), (1, 4096), (1, 65536)),
    embedding_rows: ((64, 128), (512, 128), (4096, 128)),
}


def measure() -> list[dict[str, object]]:
    rows = []
    for rows_of, shapes in SHAPES.items():
        for size, shape in zip(SIZES, shapes, strict=True):
            rows += rows_of(size, shape)
    return rows


if __name__ == "__main__":
    main("sizes", measure)
