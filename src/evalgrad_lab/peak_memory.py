"""Measures the peak memory of a block of code, above what the process used before."""

import resource
import sys
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """`with PeakMemory() as memory: ...` leaves the growth of the resident memory at its peak in
    `memory.megabytes`.

    Linux can forget the old peak of a process. Elsewhere the growth of the peak of its whole life
    is what can be known.
    """

    megabytes = 0.0

    def __enter__(self) -> "PeakMemory":
        self._forgets = RESET.exists()
        if self._forgets:
            RESET.write_text("5")
        self._before = _kilobytes("VmRSS") if self._forgets else _lifetime_peak()
        return self

    def __exit__(self, *_: object) -> None:
        peak = _kilobytes("VmHWM") if self._forgets else _lifetime_peak()
        self.megabytes = max(0.0, peak - self._before) / 1024


def _kilobytes(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return float(line.split()[1])


def _lifetime_peak() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else float(peak)
