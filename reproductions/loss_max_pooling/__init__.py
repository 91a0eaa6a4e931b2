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
    "[loss_max_pooling.md](../loss_max_pooling.md) describes the loss,"
    " [sampling.md](../sampling.md) the sampling. Figures 1 and 2 are those of the paper. The"
    " tables and figures 3 and 4 follow its protocol on digit scenes: one network per seed is"
    " trained to convergence with cross-entropy, then fine-tuned with every method; the paper"
    " starts from weights pretrained on MS-COCO. The paper gives means and deviations over the"
    " last iterations of one training; here they are over seeds, and figure 4 has both. Table 4,"
    " on Pascal VOC, has only its config ([README.md](README.md)), and the paper's tables per"
    " class are of other classes than those here. `--camvid FOLDER` adds road scenes; table 1 is"
    " of them alone, because on digit scenes every p and every support give cross-entropy times a"
    " constant. The paper says that BASE would match LMP with its worst 7 categories better by 5 %"
    " each, or its worst 10 by 3 %. Read as points and by its table 2, that is 74.39 or 74.13,"
    " where LMP has 75.06: it takes 6.8 or 4.8 points. From BASE+ (73.63) both would do; the paper"
    " may mean that. Its number for online bootstrapping, 74.64, is that of others with a deeper"
    " network.",
    [FIGURES, TABLE_2, FIGURE_3, FIGURE_4, TABLE_1, *CAMVID],
)
