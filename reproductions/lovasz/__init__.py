"""Lovász-Softmax (Berman et al., CVPR 2018): figures 1 to 9, tables 1 to 4, appendices A to C."""

from reproductions.experiment import Paper
from reproductions.lovasz.binary import MATRIX, PRIOR_WORK
from reproductions.lovasz.brain import BRAIN
from reproductions.lovasz.circles import CIRCLES
from reproductions.lovasz.enet import ENET, ENET_CAMVID
from reproductions.lovasz.per_class import PER_CLASS
from reproductions.lovasz.prox import SURFACE
from reproductions.lovasz.scenes import CAMVID, CURVES, TABLE
from reproductions.lovasz.surfaces import SURFACES

PAPER = Paper(
    "lovasz",
    "The Lovász-Softmax loss",
    "Berman, Rannen Triki, Blaschko: The Lovász-Softmax loss: a tractable surrogate for the"
    " optimization of the intersection-over-union measure in neural networks, CVPR 2018.",
    "What is synthetic is done exactly. Pascal VOC and Cityscapes cannot be had here:"
    " scikit-learn's digits stand in for them, with small networks, and CamVid, whose folder"
    " `--camvid` names. As in the paper one network per"
    " seed is trained with cross-entropy first, and every loss fine-tunes it. Learning rates are"
    " chosen on validation, with the same budget for every loss. Left out:"
    " figure C.2, because on small tasks the last layer under the Lovász hinge hardly leaves the"
    " value of scores that are all zero, whatever the method.",
    [
        SURFACES,
        CIRCLES,
        MATRIX,
        PRIOR_WORK,
        PER_CLASS,
        TABLE,
        CURVES,
        *CAMVID,
        ENET,
        ENET_CAMVID,
        BRAIN,
        SURFACE,
    ],
)
