"""The experiments of the smooth top-k paper."""

from reproductions.experiment import Paper
from reproductions.smooth_topk import margin, noise, overflow, speed, subsets, temperature

PAPER = Paper(
    name="smooth_topk",
    title="Smooth loss functions for deep top-k classification",
    citation=(
        "Berrada, Zisserman, Kumar, ICLR 2018. The losses:"
        " [docs/smooth_topk.md](../smooth_topk.md)."
    ),
    introduction=(
        "The paper trains a DenseNet on CIFAR-100 and a ResNet-18 on ImageNet. Here pairs of digits"
        " make 100 classes in 20 groups\nof 5, the shape of CIFAR-100, so that its protocols carry"
        " over; the networks are small. The tables on algorithms need no\nstand-in. L5,t is the"
        " smooth top-5 loss at temperature t, CE cross-entropy."
    ),
    experiments=[
        temperature.EXPERIMENT,
        temperature.ANNEALING,
        noise.EXPERIMENT,
        subsets.SHARES_EXPERIMENT,
        subsets.CROPS_EXPERIMENT,
        speed.EXPERIMENT,
        overflow.EXPERIMENT,
        margin.EXPERIMENT,
    ],
)
