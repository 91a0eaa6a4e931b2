"""Worker processes that do not outlive the command that started them."""

import ctypes
import signal
import sys

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def end_with_parent() -> None:
    """Call it in a new worker: it then dies when its parent does, even of SIGKILL. Linux only;
    elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
