"""evalgrad: train PyTorch networks on the metric they are judged by.

Public is what the `__all__` of a system names; metrics and what spans processes have rooms of their
own: `evalgrad.metrics`, `evalgrad.decisions`, `evalgrad.distributed`.
"""

from evalgrad import decisions as decisions
from evalgrad import distributed as distributed
from evalgrad import metrics as metrics
from evalgrad.baselines import *
from evalgrad.direct_loss import *
from evalgrad.loss_max_pooling import *
from evalgrad.lovasz import *
from evalgrad.s_measures import *
from evalgrad.sampling import *
from evalgrad.smooth_topk import *

__version__ = "0.1.0"
