"""The gradient of a batch of 64 images with the memory of 8: two passes instead of plain
accumulation.
"""

import torch

import evalgrad as eg
from evalgrad.distributed import micro_batch_backward

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 4, 1)
)
images, target = torch.randn(64, 3, 16, 16), torch.randint(4, (64, 16, 16))

eg.lovasz_softmax_loss(model(images), target).backward()  # all at once
whole = torch.cat([p.grad.flatten() for p in model.parameters()])

model.zero_grad()
value = micro_batch_backward(
    model, images, lambda scores: eg.lovasz_softmax_loss(scores, target), size=8
)
two_passes = torch.cat([p.grad.flatten() for p in model.parameters()])
print(
    f"loss {value.item():.4f}, largest difference of the gradients"
    f" {(two_passes - whole).abs().max().item():.0e}"
)
