"""Lines on stderr beside that of the progress. It does not import torch."""

import sys

CLEAR = "\r\033[K"  # back to the beginning of the line, which is emptied


def say(text: str) -> None:
    """A line of its own. In a terminal it takes the place of a line of progress, which has no end
    yet.
    """
    print(f"{CLEAR * sys.stderr.isatty()}{text}", file=sys.stderr, flush=True)
