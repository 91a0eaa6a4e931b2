"""S-measures (Ravi et al., AAAI 2020): experiments 1 to 3, the projections of figure
3, and more than two sizes, of which the paper has no experiment.
"""

from reproductions.experiment import Paper
from reproductions.s_measures.digits import DIGITS, PROJECTIONS
from reproductions.s_measures.many_classes import MANY_CLASSES
from reproductions.s_measures.many_sizes import MANY_SIZES
from reproductions.s_measures.one_class import ONE_CLASS

PAPER = Paper(
    "s_measures",
    "S-measures",
    "Ravi et al.: *Optimizing Nondecomposable Data Dependent Regularizers via Lagrangian"
    " Reparameterization*, AAAI 2020.",
    "[s_measures.md](../s_measures.md) describes the measures and what had to be corrected in the"
    " paper's algorithms. Experiment 1 follows the paper with S-digits, scikit-learn's digits in"
    " place of MNIST's, and with `--full` on S-MNIST; more than two sizes, which the paper has in"
    " its text alone, are tried on the same digits. Experiments 2 and 3 follow its protocol on"
    " other data: experiment 2 on noisy digits and with `--full` on land of the Earth, with a"
    " smaller version of the paper's network, SegNet; experiment 3 trains a converged network"
    " further. `paper's steps` are the constant ones of section 4; algorithm 1 divides those of the"
    " multipliers by the epoch, with which they move even less"
    " (`reproductions/s_measures/literal.py` has both). The paper's histograms of sizes and"
    " pictures of masks are left out: they show MS-COCO, and decide no claim.",
    [DIGITS, MANY_SIZES, PROJECTIONS, ONE_CLASS, MANY_CLASSES],
)
