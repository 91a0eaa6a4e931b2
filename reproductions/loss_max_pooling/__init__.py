"""Loss max-pooling (Rota Bulò et al., CVPR 2017): figures 1 to 4, tables 1 and 2."""

from reproductions.experiment import Paper
from reproductions.loss_max_pooling.methods import CAMVID, FIGURE_3, FIGURE_4, TABLE_2
from reproductions.loss_max_pooling.sweeps import TABLE_1
from reproductions.loss_max_pooling.weightings import FIGURES

PAPER = Paper(
    "loss_max_pooling",
    "Loss max-pooling",
    "Rota Bulò, Neuhold, Kontschieder: *Loss Max-Pooling for Semantic Image Segmentation*, CVPR"
    " 2017.",
    "The loss is described in [loss_max_pooling.md](../loss_max_pooling.md), the sampling in"
    " [sampling.md](../sampling.md). Figures 1 and 2 are the paper's own. Tables and figures 3 and"
    " 4 keep its protocol on digit scenes: one network per seed is trained to convergence with"
    " cross-entropy and then fine-tuned by every method, as the paper starts from weights of"
    " MS-COCO. `--full` has more seeds and all exponents. `--camvid FOLDER` adds road"
    " scenes.",
    [FIGURES, TABLE_1, TABLE_2, FIGURE_3, FIGURE_4, *CAMVID],
)
