"""Training on several processes.

A loss that follows a metric is not a mean over samples: the mean of the losses of two processes is
not the loss of their batches together. `global_batch` computes the latter, and the gradient is that
of one process with the whole batch. This script runs on two processes with gloo, on a CPU.

Run: python -m torch.distributed.run --standalone --nproc-per-node 2 docs/tutorials/processes.py
"""

# %%
# Every process starts with the same weights and has its own half of the batch.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import evalgrad as eg

dist.init_process_group("gloo")  # "nccl" on GPUs
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
network = torch.nn.Linear(16, 1)
inputs, target = torch.randn(64, 16), (torch.rand(64) < 0.2).long()
mine = slice(rank, None, world)


def say(text):
    if rank == 0:
        print(text)


say(f"{world} processes with {len(target[mine])} items each, {target.sum()} positives in all")

# %%
# The reference: one process with the whole batch.
loss = eg.DirectAveragePrecisionLoss(epsilon=1.0)
whole = loss(network(inputs).squeeze(1), target)
whole.backward()
expected = network.weight.grad.clone()
say(f"one process: loss {whole.item():.4f}")

# %%
# DDP alone averages the gradients of two different losses, each of half of the items.
network.zero_grad()
parallel = DistributedDataParallel(network)
parts = loss(parallel(inputs[mine]).squeeze(1), target[mine])
parts.backward()
mean = parts.detach() / world
dist.all_reduce(mean)
off = (network.weight.grad - expected).norm() / expected.norm()
say(f"mean of the losses {mean.item():.4f}, gradient off by {off:.0%}")

# %%
# `global_batch` wraps any loss; DDP is used as usual.
network.zero_grad()
together = eg.distributed.global_batch(loss)
value = together(parallel(inputs[mine]).squeeze(1), target[mine])
value.backward()
off = (network.weight.grad - expected).norm() / expected.norm()
say(f"global batch: loss {value.item():.4f}, gradient off by {off:.0e}")
dist.destroy_process_group()

# %%
# [distributed.md](../distributed.md) has uneven batches, FSDP2, micro-batches and trainers.
