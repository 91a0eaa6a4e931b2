"""The way in for embeddings with labels: every item a query, and its list all the others.

An item of the query's own label is a positive. Whether two labels are equal is all that is asked of
them, so that any integers do and none is undeclared.
"""

import contextlib
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, floating, like
from evalgrad._labels import binary_labels, fail_indices

Similarity = Literal["cosine", "dot"]


class Embedded(NamedTuple):
    """N items whose products are their similarities."""

    x: Tensor  # (N, D) with its graph, in the dtype it is computed in; 0 where an item is left out
    label: Tensor  # (N,) int64
    mask: Tensor | None  # (N,) bool, True = counts; None: everything does
    invalid: Tensor | None  # (1,) bool: a mask of other values than 0 and 1; None: it was read


def embedded(
    function: str, embeddings: object, labels: object, mask: object, similarity: Similarity
) -> Embedded:
    """Embeddings ``(N, D)``, labels ``(N,)`` and perhaps a mask ``(N,)``."""
    x = floating(function, "embeddings", embeddings, at_least=2)
    if x.ndim != 2 or not x.shape[1]:
        repair = "One vector per item: `embeddings.flatten(1)`."
        fail(ValueError, function, "embeddings", "(N, D) with D >= 1", describe(x), repair)
    label = like(function, "labels", labels, x[:, 0])
    if label.is_floating_point() or label.is_complex():
        fail_indices(function, "labels", label)
    x, counts = x.to(WORKING[x.dtype]), None
    if mask is not None:
        given = like(function, "mask", mask, x[:, 0])
        counts = binary_labels(function, given.unsqueeze(0), "mask")
        x = torch.where(counts.positive[0].unsqueeze(1), x, 0.0)
    x = _of_length_one(x) if similarity == "cosine" else x
    if counts is None:
        return Embedded(x, label.long(), None, None)
    return Embedded(x, label.long(), counts.positive[0], counts.invalid)


def _of_length_one(x: Tensor) -> Tensor:
    """The directions of vectors; 0 stays 0."""
    # First by the largest entry, a constant to the derivative: squares may overflow.
    largest = x.detach().abs().amax(1, keepdim=True)
    x = x / torch.where(largest == 0, 1.0, largest)
    return x / torch.where(largest == 0, 1.0, torch.linalg.vector_norm(x, dim=1, keepdim=True))


def lists_of(
    x: Tensor, label: Tensor, mask: Tensor | None, queries: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Similarities of the queries to all items, ``(Q, N)``, which are positives, and which count:
    not the query itself, and of a query that does not count none.
    """
    with unrounded(x.device.type):
        scores = x[queries] @ x.T
    others = queries.unsqueeze(1) != torch.arange(len(x), device=x.device)
    if mask is not None:
        others = others & mask & mask[queries].unsqueeze(1)
    return scores, label[queries].unsqueeze(1) == label, others


def unrounded(device: str) -> contextlib.AbstractContextManager[object]:
    """Autocast would round the vectors, and rankings depend on small differences."""
    if torch.compiler.is_compiling():  # torch 2.6 cannot trace the question below
        available = device != "meta"
    else:
        available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else contextlib.nullcontext()
