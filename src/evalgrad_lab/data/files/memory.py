"""Memory that a process may ask for: a small file may expand to more than there is."""

import math
from pathlib import Path

from evalgrad_lab.errors import UserError


def check_memory(path: Path, needed: float, repair: str) -> None:
    """Raise if what `path` expands to, in bytes, is more than what is free."""
    free = free_memory()
    if needed > free:
        raise UserError(
            f"{path} needs {needed / 1e9:.1f} GB of memory, but only {free / 1e9:.1f} GB are free."
            f" {repair}"
        )


def free_memory() -> float:
    """Bytes that a process may ask for; infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(found[0]) if found else math.inf
