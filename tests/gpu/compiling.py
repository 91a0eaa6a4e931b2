"""What Triton's compiler makes of a kernel, for GPUs that are not here: registers and spills.

`launches` runs an operator on meta tensors and notes what it would launch; `compiled` compiles one
of those launches ahead of time.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "i1",
    torch.uint8: "u8",
}
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_ALIGNED = [["tt.divisibility", 16]]


class Launch(NamedTuple):
    """A kernel with its arguments by name."""

    kernel: JITFunction
    arguments: dict[str, Any]
    options: dict[str, Any]  # of the compiler


def launches(run, args):
    """What `run(*args)` launches; nothing is computed."""
    noted = []

    def note(kernel, *values, grid, warmup, **named):
        assert all(size > 0 for size in grid), f"{kernel.__name__}: a grid of {grid}"
        names = kernel.arg_names
        arguments = dict(zip(names, values)) | {k: v for k, v in named.items() if k in names}
        options = {k: v for k, v in named.items() if k not in names}
        noted.append(Launch(kernel, arguments, options))

    with mock.patch.object(JITFunction, "run", note):
        run(*args)
    return noted


def _type(value):
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _divisible(value):
    return isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0)


def compiled(launch, target):
    """The kernel of a launch for one of TARGETS, specialised as Triton would."""
    names = launch.kernel.arg_names
    constant = {names[i] for i in launch.kernel.constexprs} | {
        name for name, value in launch.arguments.items() if value is None
    }
    signature = {n: "constexpr" if n in constant else _type(launch.arguments[n]) for n in names}
    given = {name: launch.arguments[name] for name in names if name in constant}
    attributes = {
        (place,): _ALIGNED
        for place, name in enumerate(names)
        if name not in constant and _divisible(launch.arguments[name])
    }
    source = ASTSource(launch.kernel, signature, given, attributes)
    return triton.compile(source, target=TARGETS[target], options=launch.options)


def resources(launch, target):
    """Registers of a thread, bytes of shared memory, and spilled registers or accesses to them."""
    kernel = compiled(launch, target)
    if target.startswith("gfx"):
        found = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", kernel.asm["amdgcn"]))
        registers, spills = int(found["vgpr_count"]), int(found["vgpr_spill_count"])
    else:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(kernel.asm["cubin"])
            file.flush()
            registers = int(re.search(r"REG:(\d+)", _dump("--dump-resource-usage", file))[1])
            spills = len(re.findall(r"\b(?:STL|LDL)\b", _dump("-sass", file)))
    return {"registers": registers, "shared": kernel.metadata.shared, "spills": spills}


def _dump(option, file):
    command = [_TOOLS / "cuobjdump", option, file.name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
