"""S-measures (Ravi et al., AAAI 2020): experiments 1 to 3 and the projections of figure 3."""

from reproductions.experiment import Paper
from reproductions.s_measures.digits import DIGITS, PROJECTIONS
from reproductions.s_measures.masks import MASKS, SCENES_TABLE

PAPER = Paper(
    "s_measures",
    "S-measures",
    "Ravi et al.: *Optimizing Nondecomposable Data Dependent Regularizers via Lagrangian"
    " Reparameterization*, AAAI 2020.",
    "The measures are described in [s_measures.md](../s_measures.md), with what had to be corrected"
    " in the paper's algorithms. Experiment 1 is the paper's own, on S-digits by default and on"
    " S-MNIST with `--full`; experiments 2 and 3 keep its protocol on other data, experiment 2 with"
    " the paper's network, a smaller SegNet.",
    [DIGITS, PROJECTIONS, MASKS, SCENES_TABLE],
)
