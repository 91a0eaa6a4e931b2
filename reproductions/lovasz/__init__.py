"""Lovász-Softmax (Berman et al., CVPR 2018): figures 1 to 9, tables 1 to 4, appendices A to C."""

from reproductions.experiment import Paper
from reproductions.lovasz.binary import MATRIX, PRIOR_WORK
from reproductions.lovasz.brain import BRAIN
from reproductions.lovasz.circles import CIRCLES
from reproductions.lovasz.enet import ENET
from reproductions.lovasz.per_class import PER_CLASS
from reproductions.lovasz.prox import SURFACE
from reproductions.lovasz.scenes import CAMVID, CURVES, TABLE
from reproductions.lovasz.surfaces import SURFACES

PAPER = Paper(
    "lovasz",
    "The Lovász-Softmax loss",
    "Berman, Rannen Triki, Blaschko: The Lovász-Softmax loss: a tractable surrogate for the"
    " optimization of the intersection-over-union measure in neural networks, CVPR 2018.",
    "The synthetic experiments are those of the paper. Pascal VOC and Cityscapes are not"
    " available here; scikit-learn's digits replace them, with small networks, and CamVid if"
    " `--camvid` gives its folder. As in the paper, one network per seed is trained with"
    " cross-entropy first, then fine-tuned with every loss; the networks of table B.2 are trained"
    " with each loss from the start. Learning rates are chosen on"
    ' validation data, with the same budget for every loss; where a section says "not tuned",'
    " all have the same one. Figure C.2 is left out: on thin"
    " strokes, training the last layer with the Lovász hinge hardly lowered the loss below its"
    " value for all-zero scores, with any of the methods, and the paper has no number for it; on"
    " nuclei, where it would be lower, it was not tried. The paper's IoU of single classes is not"
    " repeated in the tables: its classes are those of Pascal VOC."
    " Pictures of single predictions are left out too: they decide no claim"
    " ([figure 4 of loss max-pooling](loss_max_pooling.md) has some).",
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
        BRAIN,
        SURFACE,
    ],
)
