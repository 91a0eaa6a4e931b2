"""Class maps in the Lovász-Softmax loss: its errors, and the way back through the softmax.

Canonical shapes: x ``(G, M, C, S)`` logits of G groups of M images with S pixels; label ``(G, M,
S)`` int64, negative where ignored. The cores of the operators work on some of the classes at a
time, which bounds their memory.
"""

import torch
from torch import Tensor


def by_class(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Errors, foreground and mask, each ``(G, C, M*S)``, in operations that autograd knows."""
    item_label = label.flatten(1).unsqueeze(1)
    mask = (item_label >= 0).expand(-1, x.shape[2], -1)
    # +inf acts as its limit
    logits = x.clamp(max=torch.finfo(x.dtype).max).movedim(2, 1).flatten(2)
    p = torch.where(mask, logits, 0.0).softmax(1)
    foreground = item_label == torch.arange(x.shape[2], device=x.device).unsqueeze(-1)
    return torch.where(foreground, 1 - p, p), foreground, mask


def probabilities(x: Tensor, label: Tensor) -> Tensor:
    """Softmax of x; 0 at ignored pixels, which are then last in every order, without a gradient."""
    p = x.clamp(max=torch.finfo(x.dtype).max).softmax(2)  # +inf acts as its limit
    return p.masked_fill_((label < 0).unsqueeze(2), 0.0)


def errors_of(p: Tensor, label: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Errors of some classes, and their foreground as 0 and 1 in uint8: ``(G, c, M*S)``."""
    own = torch.arange(part.start, part.stop, device=p.device).view(-1, 1, 1)
    front = (label.unsqueeze(1) == own).view(torch.uint8)
    # the result has the layout of the first
    errors = torch.sub(front, p.transpose(1, 2)[:, part]).abs_()
    return errors.flatten(2), front.flatten(2)


def value_and_gradient(p: Tensor, slopes: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Value ``(G,)`` and gradient in x from slopes g in p, ``(G, C, M*S)``; both are written over.

    d/dx_c = p_c (g_c - sum_k g_k p_k), with slopes relative to that of the likeliest class, which
    then has no part in the sum: where the network is sure, g_c and the mean agree in most digits,
    and their plain difference would be noise. The error of a pixel in its own class, 1 - p, is the
    sum of all other p: so its loss is the sum of p_c (g_c - g_label), terms of one sign.
    """
    slope = slopes.unflatten(2, label.shape[1:]).transpose(1, 2)
    likeliest = slope.gather(2, p.argmax(2, keepdim=True))
    own = slope.gather(2, label.clamp(min=0).unsqueeze(2))
    product = slope.sub_(likeliest).mul_(p)
    mean = product.sum(2, keepdim=True)
    loss = torch.where(label.unsqueeze(2) >= 0, mean + (likeliest - own), 0.0)
    value = loss.sum((1, 2, 3), dtype=torch.float64).to(p.dtype)
    gradient = torch.addcmul(product, p, mean, value=-1.0, out=p)
    return value, gradient.contiguous()  # which p is, but not for a compiler: it has no `out`
