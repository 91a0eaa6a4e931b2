"""The experiments of the smooth top-k paper."""

from reproductions.experiment import Paper
from reproductions.smooth_topk import (
    cost,
    dense,
    margin,
    noise,
    overflow,
    speed,
    subsets,
    temperature,
)

PAPER = Paper(
    name="smooth_topk",
    title="Smooth loss functions for deep top-k classification",
    citation=(
        "Berrada, Zisserman, Kumar, ICLR 2018. [smooth_topk.md](../smooth_topk.md) describes the"
        " losses."
    ),
    introduction=(
        "The paper trains a DenseNet on CIFAR-100 and a ResNet-18 on ImageNet. Here, small"
        " networks are trained on pairs of digits and, with `--full`, on pairs of CIFAR-10"
        " photographs. The pairs form 100 classes in 20 groups of 5, as many as in CIFAR-100, so"
        " the paper's protocols can be followed. Label noise stays within the group `label - label"
        " % 5`, as in the authors' code. In CIFAR-100 these groups are not the coarse classes that"
        " the paper's text names; here they are: all pairs of a group have the same first class,"
        " and a second class from the same half of the ten. The tables about the algorithms need"
        " no other data. L5,t is the smooth top-5 loss at temperature t; CE is cross-entropy."
        " Multiplying polynomials by FFT, which the paper suggests for large k and calls"
        " negligible for small k, is left out: its rounding errors scale with the largest"
        " coefficient, and the coefficients that are needed are many orders of magnitude smaller."
        " The losses of Fan et al. and Chang et al., which the paper only names, are left out;"
        " those of Lapin et al. are among the [baselines](../baselines.md)."
    ),
    experiments=[
        temperature.EXPERIMENT,
        temperature.ANNEALING,
        noise.EXPERIMENT,
        dense.EXPERIMENT,
        subsets.SHARES_EXPERIMENT,
        subsets.CROPS_EXPERIMENT,
        speed.EXPERIMENT,
        cost.EXPERIMENT,
        overflow.EXPERIMENT,
        margin.EXPERIMENT,
    ],
)
