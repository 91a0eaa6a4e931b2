"""Seeded faults in the kernels of the exact Lovász losses, which the comparison with the torch core
or the sanitizer must find.
"""

from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import torch
from broken import put_in, with_fault
from sanitizer import Trace

from evalgrad import _native
from evalgrad._triton import lovasz_slots
from evalgrad._triton.lovasz_errors import class_maps, hinge_rows

FILES = [f"lovasz_{part}" for part in ("errors", "lists", "plan", "slots", "walk", "weights")]


def _generator():
    return torch.Generator().manual_seed(0)


def classes():
    """Some pixels ignored, and no pixel of the last class."""
    x = torch.randn(1, 2, 4, 300, generator=_generator())
    label = torch.randint(-1, 3, (1, 2, 300), generator=_generator())
    factor, metric = torch.tensor([[0.5, 1.0, 1.5, 1.0]]), (0.7, 0.4)
    return class_maps(x, label), factor, metric, ("lovasz_softmax", x, label, factor, *metric)


def _hinge(x, foreground, mask, factor, metric):
    arguments = ("lovasz_rows", x, foreground, mask, factor, True, *metric)
    return hinge_rows(x, foreground, mask), factor, metric, arguments


def rows():
    """With a mask, and one without foreground whose largest errors share the finest of slots."""
    x = torch.randn(3, 300, generator=_generator())
    foreground = torch.rand(3, 300, generator=_generator()) < 0.3
    foreground[2] = False
    x[2, :5] = 4 + torch.arange(5) * 1e-6
    mask = torch.rand(3, 300, generator=_generator()) < 0.8
    mask[2, :5] = True
    return _hinge(x, foreground, mask, torch.tensor([0.5, 1.0, 0.7]), (0.7, 0.4))


def dense_row():
    """More errors in a coarse slot than a list may have."""
    x = torch.randn(1, 3000, generator=_generator())
    foreground = torch.rand(1, 3000, generator=_generator()) < 0.3
    return _hinge(x, foreground, None, torch.ones(1), (0.7, 0.4))


@contextmanager
def no_room():
    """For more than five errors in lists, which then are taken as tied: not exact."""
    sizes = lovasz_slots.table_sizes
    with mock.patch.object(
        lovasz_slots, "table_sizes", lambda items, coarse: (sizes(items, coarse)[0], 5)
    ):
        yield


def differs(prepare):
    """Whether value or gradient are wrong, and the trace of the kernels."""
    maps, factor, metric, (name, *arguments) = prepare()
    value, gradient = _native.operators[name].pure(*arguments)
    with Trace() as trace:
        found = lovasz_slots.in_slots(maps, factor, *metric)
    off, norm = (g.flatten(1).norm(dim=1) for g in (found[1] - gradient, gradient))
    near = (off <= 6e-5 * norm).all() and torch.allclose(found[0], value, rtol=1e-5)
    return not near, trace


# the file, what shows it, what is right, what is wrong
FAULTS = {
    "a gradient beyond the image": (
        "lovasz_slots", classes, "HINGE, CLASSES), mask=inside)",
        "HINGE, CLASSES), mask=place >= 0)",
    ),
    "slots instead of lists": (
        "lovasz_slots", classes, "tl.where(bits > LISTED, own, slope)",
        "tl.where(bits > LISTED, slope, slope)",
    ),
    "lists instead of slots": (
        "lovasz_slots", classes, "tl.where(bits > LISTED, own, slope)",
        "tl.where(bits > LISTED, own, own)",
    ),
    "ahead of itself": ("lovasz_lists", classes, "other_key > key", "other_key >= key"),
    "nothing is listed": ("lovasz_lists", classes, "cost > limit)", "cost > 2e30)"),
    "ties of the largest cost nothing": (
        "lovasz_walk", rows, "(b == 0) & (g > 1)", "(b == 0) & (g > 9e9)"
    ),
    "a block forgets the one before": (
        "lovasz_walk", classes, "b += tl.sum(g)\n    tl.store", "b += 0\n    tl.store"
    ),
    "fine slots are coarse": (
        "lovasz_plan", dense_row, "(top << STEP)) >> shift)", "(top << STEP)) >> STEP)"
    ),
    "the second error is the largest": (
        "lovasz_weights", classes, "(b == 0) & (g > 0)", "(b == 1) & (g > 0)"
    ),
    "false alarms weigh 1": ("lovasz_weights", classes, "0.5 * w *", "0.5 *"),
    "the last slot is counted twice": (
        "lovasz_errors", rows, "by_item = counted & (slot != last)", "by_item = counted"
    ),
}  # fmt: skip
# Shown by the sanitizer, where lists have no room.
FAULTS_OF_ROOM = {
    "lists run over": ("(one < most) & (place_in_pool + items <= room)", "(one < most)"),
    "an error too many": (
        "own = tl.load(pool + row * room + start + i, mask=i < length",
        "own = tl.load(pool + row * room + start + i, mask=i <= length",
    ),
}  # fmt: skip
# Two faults change nothing, and are not here. `coarse > rest` in the plan gives the first of the
# slots of the rest a place of its own, in counting and in looking up: finer than it needs to be.
# `place <= end` in fill lets an error through that its list has no room for, which there is only
# where an error rounds otherwise than when it was counted: never on the interpreter.


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path, monkeypatch):
    file, prepare, right, wrong = FAULTS[fault]
    put_in(monkeypatch, with_fault(tmp_path, file, right, wrong), FILES)
    is_wrong, trace = differs(prepare)
    assert is_wrong or not trace.clean


@pytest.mark.parametrize("fault", FAULTS_OF_ROOM)
def test_a_fault_of_room_is_found(fault, tmp_path, monkeypatch):
    put_in(monkeypatch, with_fault(tmp_path, "lovasz_lists", *FAULTS_OF_ROOM[fault]), FILES)
    with no_room():
        _, trace = differs(rows)  # the five of the last row fill all the room there is
    assert not trace.clean


@pytest.mark.parametrize("prepare", [classes, rows, dense_row])
@pytest.mark.parametrize("room", [nullcontext, no_room])
def test_without_a_fault_nothing_is_found(prepare, room, tmp_path, monkeypatch):
    for file in FILES:
        put_in(monkeypatch, with_fault(tmp_path, file, "import triton\n", "import triton\n"), FILES)
    with room():
        is_wrong, trace = differs(prepare)
    assert room is no_room or not is_wrong
    assert trace.clean, trace
