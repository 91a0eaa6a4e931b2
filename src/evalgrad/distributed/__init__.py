"""One batch in several pieces: over ranks, over micro-batches, over time. The gradient stays that
of the whole.
"""

from evalgrad.distributed.gather import gather_batch
from evalgrad.distributed.global_batch import GlobalBatch, global_batch
from evalgrad.distributed.memory import CrossBatchMemory
from evalgrad.distributed.micro_batches import micro_batch_backward
from evalgrad.distributed.padding import sampler_padding

__all__ = [
    "CrossBatchMemory",
    "GlobalBatch",
    "gather_batch",
    "global_batch",
    "micro_batch_backward",
    "sampler_padding",
]
