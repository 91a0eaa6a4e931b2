"""What `import evalgrad` loads: the library and torch, not the compiler."""

import subprocess
import sys

HEAVY = (
    "torch._dynamo",
    "sympy",
    "torch.distributed.fsdp",
    "numpy.testing",
    "scipy",
    "lightning",
    "triton",
)


def test_the_import_loads_no_compiler():
    """Each takes as long as torch, or nearly; a loop that compiles nothing must not wait for it."""
    code = f"""
import sys, torch
before = set(sys.modules)
import evalgrad
new = set(sys.modules) - before
print([name for name in {HEAVY} if name in new])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
