"""The operators of the Lovász losses: in bins, and exact in slots as fine as it takes."""

import torch
from torch import Tensor

from evalgrad._triton import implements
from evalgrad._triton.class_maps import class_maps_example
from evalgrad._triton.lovasz_bins import count, in_bins, look_up
from evalgrad._triton.lovasz_errors import class_maps, hinge_rows
from evalgrad._triton.lovasz_slots import in_slots

_METRIC = (0.7, 0.4)  # misses, false alarms


def _factor(*shape: int) -> Tensor:
    return torch.linspace(0.5, 1.5, torch.Size(shape).numel()).view(shape)


@implements(lambda dtype: (*class_maps_example(dtype), _factor(1, 3).to(dtype), *_METRIC))
def lovasz_softmax(
    x: Tensor, label: Tensor, factor: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor] | None:
    """Value ``(G,)`` and gradient in x."""
    maps = class_maps(x, label)
    return None if maps is None else in_slots(maps, factor, misses, false_alarms)


def _binned_example(dtype: torch.dtype) -> tuple[Tensor | float, ...]:
    return *class_maps_example(dtype), _factor(1, 3).to(dtype), 16, *_METRIC


@implements(_binned_example)
def lovasz_softmax_bins(
    x: Tensor,
    label: Tensor,
    factor: Tensor,
    bins: int,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor] | None:
    """Value ``(G,)`` and gradient in x."""
    maps = class_maps(x, label)
    return None if maps is None else in_bins(maps, factor, bins, misses, false_alarms)


@implements(lambda dtype: (*class_maps_example(dtype), 16))
def lovasz_bin_counts(x: Tensor, label: Tensor, bins: int) -> Tensor | None:
    """Counts ``(G, C, 2, K)`` of errors, by kind and bin."""
    maps = class_maps(x, label)
    if maps is None:
        return None
    counts, _ = count(maps, bins)
    return counts.view(x.shape[0], x.shape[2], 2, bins).long()


def _gradient_example(dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, label = class_maps_example(dtype)
    slopes = torch.rand(1, 3, 2, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    slopes[:, :, 1] *= -1  # on the foreground
    return x, label, slopes


@implements(_gradient_example)
def lovasz_bin_gradient(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Value ``(G,)`` and gradient in x, from a table ``(G, C, 2, K)`` of slopes."""
    maps = class_maps(x, label)
    return None if maps is None else look_up(maps, slopes)


def _hinge_example(dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 99, generator=generator, dtype=torch.float64).to(dtype)
    foreground = torch.rand(2, 99, generator=generator) < 0.3
    return x, foreground, torch.rand(2, 99, generator=generator) < 0.8, _factor(2).to(dtype)


@implements(lambda dtype: (*_hinge_example(dtype), 16, *_METRIC))
def lovasz_hinge_bins(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor,
    bins: int,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor] | None:
    """Values ``(R,)`` and gradient in x."""
    maps = hinge_rows(x, foreground, mask)
    return None if maps is None else in_bins(maps, factor, bins, misses, false_alarms)


@implements(lambda dtype: (*_hinge_example(dtype), True, *_METRIC))
def lovasz_rows(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor | None,
    hinge: bool,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor] | None:
    """Values ``(R,)`` and gradient in x; of a hinge only, whose errors are >= 0."""
    maps = hinge_rows(x, foreground, mask) if hinge else None
    if maps is None:
        return None
    factor = x.new_ones(x.shape[0]) if factor is None else factor
    return in_slots(maps, factor, misses, false_alarms)
