"""S-measures (Ravi et al., AAAI 2020): experiments 1 to 3 and the projections of figure 3."""

from reproductions.experiment import Paper
from reproductions.s_measures.digits import DIGITS, PROJECTIONS
from reproductions.s_measures.masks import MASKS, SCENES_TABLE

PAPER = Paper(
    "s_measures",
    "S-measures",
    "Ravi et al.: *Optimizing Nondecomposable Data Dependent Regularizers via Lagrangian"
    " Reparameterization*, AAAI 2020.",
    "[s_measures.md](../s_measures.md) describes the measures and what had to be corrected in the"
    " paper's algorithms. Experiment 1 follows the paper with S-digits, scikit-learn's digits in"
    " place of MNIST's, and with `--full` on S-MNIST. Experiments 2 and 3 follow its protocol on"
    " other data, experiment 2 with `--full` on land of the Earth; it uses a smaller version of"
    " the paper's network, SegNet. The paper's histograms of sizes and pictures of masks are left"
    " out: they show MS-COCO, and decide no claim.",
    [DIGITS, PROJECTIONS, MASKS, SCENES_TABLE],
)
