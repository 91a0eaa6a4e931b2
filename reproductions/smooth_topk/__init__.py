"""The experiments of the smooth top-k paper."""

from reproductions.experiment import Paper
from reproductions.smooth_topk import dense, margin, noise, overflow, speed, subsets, temperature

PAPER = Paper(
    name="smooth_topk",
    title="Smooth loss functions for deep top-k classification",
    citation=(
        "Berrada, Zisserman, Kumar, ICLR 2018. The losses:"
        " [docs/smooth_topk.md](../smooth_topk.md)."
    ),
    introduction=(
        "The paper trains a DenseNet on CIFAR-100 and a ResNet-18 on ImageNet. Here pairs of"
        " digits, with `--full` of the photographs of CIFAR-10, make 100 classes in 20 groups of"
        " 5, the shape of CIFAR-100, so that its protocols carry over; the networks are small."
        " Noise stays within `label - label % 5`, which is what the authors' code does; in"
        " CIFAR-100 those are not the coarse classes of the text, in pairs they are: the same"
        " first image, and a half of the second ones. The tables on algorithms need no stand-in."
        " L5,t is the smooth top-5 loss at temperature t, CE cross-entropy. Left out: products"
        " of polynomials by FFT, which the paper names for large k and calls negligible for small."
        " Their rounding errors are of the size of the largest coefficient, and the wanted ones"
        " are many orders smaller."
    ),
    experiments=[
        temperature.EXPERIMENT,
        temperature.ANNEALING,
        noise.EXPERIMENT,
        dense.EXPERIMENT,
        subsets.SHARES_EXPERIMENT,
        subsets.CROPS_EXPERIMENT,
        speed.EXPERIMENT,
        overflow.EXPERIMENT,
        margin.EXPERIMENT,
    ],
)
