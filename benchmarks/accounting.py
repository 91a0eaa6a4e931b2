"""What a function would do on an accelerator, counted on meta tensors: launches, bytes, peak
memory, synchronisations. Nothing is computed.

    with Account([logits, target]) as seen:  # tensors on the meta device
        loss(logits, target).backward()
    print(seen.launches, seen.bytes / 1e9, seen.peak / 1e6, dict(seen.syncs))

An opaque operator hides its work: within `evalgrad._native.open_operators` there is none. Every
operation reads its inputs and writes its results once; sorts are counted as aten's radix passes.
The random access of gather and scatter costs more than its bytes, so the figures are floors.
"""

import collections
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# without a kernel: views, and memory without a content
FREE = {
    "view",
    "_unsafe_view",
    "reshape",
    "expand",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "t",
    "slice",
    "select",
    "split",
    "chunk",
    "detach",
    "alias",
    "as_strided",
    "unbind",
    "movedim",
    "flatten",
    "unflatten",
    "diagonal",
    "_reshape_alias",
    "narrow",
    "split_with_sizes",
    "lift_fresh",
    "view_as",
    "unfold",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "size",
    "stride",
    "sym_size",
    "is_same_size",
}
SYNCS = {
    "_local_scalar_dense",
    "nonzero",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "is_nonzero",
    "equal",
    "masked_select",
    "item",
    "bincount",
}
# what is there before is not read
FILLS = {
    "fill_",
    "zero_",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
}
OVERWRITES = {"copy_", "scatter_", "index_fill_"}


def touched(t: Tensor) -> int:
    """Bytes of a tensor; an expanded axis is read once."""
    n = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        if stride != 0 or size == 0:
            n *= size
    return int(n) * t.element_size()


def sort_cost(shape: tuple[int, ...], key: int, index: int = 8) -> tuple[int, int, int]:
    """Bytes, launches, temporary bytes of torch.sort on CUDA along the last axis (aten's Sort.cpp
    and SortStable.cu).
    """
    n, segments = shape[-1], 1
    for size in shape[:-1]:
        segments *= size
    items, passes = n * segments, key  # eight bits in a pass
    if n <= 4096:
        return items * (8 + 2 * key + 2 * (key + index)), 3, 0
    if segments == 1 or n >= 1_000_000:
        moved = items * (passes * 2 * (key + index) + key)
        return moved, 1 + segments * (3 + passes), n * (2 * index + key)
    if segments < 128:
        more = (max(1, (segments - 1).bit_length()) + 7) // 8
        moved = items * (8 + passes * 2 * (key + 8) + 2 * key + more * 16 + 24)
        return moved, 8 + passes + more, items * (24 + 2 * key)
    return items * (8 + passes * 2 * (key + index) + key), 5, items * (2 * index + key)


class Account(TorchDispatchMode):
    """Counts while it is entered; `inputs` are not charged to the peak."""

    def __init__(self, inputs: Iterable[Tensor] = (), device: str = "meta") -> None:
        super().__init__()
        self.device, self.launches, self.bytes, self.live, self.peak = device, 0, 0, 0, 0
        self.operations: collections.Counter[str] = collections.Counter()
        self.bytes_of: collections.Counter[str] = collections.Counter()
        self.syncs: collections.Counter[str] = collections.Counter()
        self.storages: dict[int, Any] = {t.untyped_storage()._cdata: None for t in inputs}

    def __enter__(self) -> "Account":
        self.tensor = torch.tensor
        torch.tensor = self._tensor_from_host  # a copy waits for the host, and dispatch hides it
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.tensor = self.tensor
        super().__exit__(*error)

    def _tensor_from_host(self, *args: Any, **options: Any) -> Tensor:
        device = options.get("device")
        if device is not None and torch.device(device).type == self.device:
            self.syncs["torch.tensor(device=)"] += 1
        return self.tensor(*args, **options)

    def _here(self, tree: Any) -> list[Tensor]:
        leaves = tree_leaves(tree)
        return [t for t in leaves if isinstance(t, Tensor) and t.device.type == self.device]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.split("::")[1]
        options = kwargs or {}
        results = func(*args, **options)
        given = [a for a in tree_leaves((args, options)) if isinstance(a, Tensor)]
        read = {name: value for name, value in options.items() if name != "out"}
        inputs, outputs = self._here((args, read)), self._here(results)
        if name in SYNCS and inputs:
            self.syncs[name] += 1
        if (
            name in ("where", "copy_", "_to_copy")
            and outputs
            and len(self._here(given)) < len(given)
        ):
            self.syncs[f"{name} from the host"] += 1
        if name not in FREE and not getattr(func, "is_view", False) and (inputs or outputs):
            self._charge(name, inputs, outputs)
        for t in outputs:
            self._hold(t)
        return results

    def _charge(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        read = [] if name in FILLS else list({id(t): t for t in inputs}.values())
        amount = 0
        if name.startswith("nll_loss"):  # reads one score of each item; backward only their shape
            scores = read.pop(1 if "backward" in name else 0)
            amount = 0 if "backward" in name else touched(scores) // scores.shape[1]
        elif name in OVERWRITES:
            read = read[1:]
        elif name == "gather":  # as many entries as it returns, if those are fewer
            amount, read = min(touched(read[0]), touched(outputs[0])), read[1:]
        amount += sum(map(touched, read)) + sum(map(touched, outputs))
        launches, temporary = 1, 0
        if name == "sort":
            shape = tuple(inputs[0].shape)
            amount, launches, temporary = sort_cost(shape, inputs[0].element_size())
        self.launches += launches
        self.operations[name] += 1
        self.bytes += amount
        self.bytes_of[name] += amount
        held = self.live + temporary + (sum(map(touched, outputs)) if temporary else 0)
        self.peak = max(self.peak, held)

    def _hold(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.storages:
            return

        def gone(_: Any) -> None:
            self.live -= size
            self.storages.pop(key, None)

        self.storages[key] = weakref.ref(storage, gone)
        self.live += size
        self.peak = max(self.peak, self.live)


def account(step: Callable[[], object], inputs: Iterable[Tensor]) -> Account:
    """What one call does, on tensors of the meta device."""
    with Account(inputs) as seen:
        step()
    return seen
