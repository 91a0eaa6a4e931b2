"""Direct loss minimisation (Song et al., ICML 2016): figures 3 to 5, tables 1, 2, section 4.3."""

from reproductions.direct_loss.batches import BATCH_SIZE
from reproductions.direct_loss.classes import CLASSES_TABLE
from reproductions.direct_loss.detection import DETECTION
from reproductions.direct_loss.synthetic import LINEAR, TEACHER
from reproductions.experiment import Paper

PAPER = Paper(
    "direct_loss",
    "Direct loss minimisation",
    "Song, Schwing, Zemel, Urtasun: *Training Deep Neural Networks via Direct Loss Minimization*,"
    " ICML 2016.",
    "[direct_loss.md](../direct_loss.md) describes the loss. The synthetic experiments are those"
    " of the paper. Tables 1 and 2 are stand-ins on other data, because Pascal VOC 2012 would need"
    " its images, 2,000 selective-search boxes per image and an AlexNet pretrained on ImageNet."
    " Table 1 ranks digits, split 60/15/25, and with `--full` photographs, split into thirds as in"
    " the paper. The configs `voc_actions_direct_ap`,"
    " `voc_detection_direct_ap`, `voc_detection_logistic` and `voc_detection_softmax` have the"
    " settings for Pascal VOC itself ([README.md](README.md)).",
    [TEACHER, LINEAR, CLASSES_TABLE, DETECTION, BATCH_SIZE],
)
