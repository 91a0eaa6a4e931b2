"""A plain training loop on the global batch: alone, or on ranks by `torchrun --standalone
--nproc-per-node 2 plain_loop.py`.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import evalgrad as eg

if "RANK" in os.environ:
    dist.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)
model = torch.nn.Conv2d(3, 4, 3, padding=1)
model = DistributedDataParallel(model) if dist.is_initialized() else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = eg.distributed.global_batch(eg.LovaszSoftmaxLoss(ignore_index=255))
torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)  # other data on each rank
images, target = torch.randn(8, 3, 16, 16), torch.randint(4, (8, 16, 16))
for step in range(3):
    optimizer.zero_grad()
    value = loss(model(images), target)
    value.backward()
    optimizer.step()
    print(f"step {step}: loss of the global batch {value.item():.4f}", flush=True)
