"""Numbers as arguments of kernels: Triton passes a Python float as float32, so one that has to be
exact is passed as two.
"""

import struct

import triton
import triton.language as tl


def in_two(number: float) -> tuple[float, float]:
    """A number as two that float32 holds, the second of what the first leaves."""
    first = struct.unpack("f", struct.pack("f", number))[0]
    return first, number - first


@triton.jit
def sum_of_two(first, rest):
    return tl.full((), 0.0, tl.float64) + first + rest
