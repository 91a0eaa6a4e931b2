"""Volumes in the format NIfTI-1, one file for header and values."""

import gzip
import math
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.data.files.memory import check_memory
from evalgrad_lab.errors import UserError

HEADER = 348  # bytes
WRONG = (OSError, EOFError, zlib.error, struct.error, ValueError, KeyError, OverflowError)
WHERE = (("h", 70), ("f", 108))  # the code of the numbers, and where they start
# by their code in the header: how they are stored, and as what torch takes them
DTYPES = {
    2: ("u1", "u1"),
    4: ("i2", "i2"),
    8: ("i4", "i4"),
    16: ("f4", "f4"),
    64: ("f8", "f8"),
    256: ("i1", "i1"),
    512: ("u2", "i4"),
}


def read_nifti(path: Path) -> Tensor:
    """The values (x, y, z) of a .nii or .nii.gz file; of a series the first volume."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _volume(path, file)
    except MemoryError as error:  # of a process that may ask for less than is free
        raise UserError(f"{path} needs more memory than there is. Use a smaller volume.") from error
    except WRONG as error:
        raise UserError(f"{path} must be a NIfTI-1 volume of numbers ({error}).") from error


def _volume(path: Path, file: BufferedIOBase) -> Tensor:
    """Nothing is unpacked but the header and the values that it declares."""
    header = file.read(HEADER)
    order = "<" if struct.unpack_from("<i", header)[0] == HEADER else ">"
    axes, *sides = struct.unpack_from(f"{order}8h", header, 40)
    (code,), (offset,) = (struct.unpack_from(f"{order}{c}", header, at) for c, at in WHERE)
    sides, start = sides[:3], int(offset)
    if axes < 3 or min(sides) < 1 or start < HEADER:
        raise ValueError(f"{axes} axes, sides {sides}, values from byte {start} on")
    stored, kept = DTYPES[code]
    size = math.prod(sides) * np.dtype(stored).itemsize
    check_memory(path, 3 * size, "Use a smaller volume.")  # as read, as a tensor, and of classes
    file.seek(start)
    values = np.frombuffer(file.read(size), order + stored, math.prod(sides))
    file.read(1)  # at its end gzip compares the checksum
    volume = values.reshape(sides, order="F")  # the first axis runs fastest
    return torch.from_numpy(np.ascontiguousarray(volume, kept))
