"""Volumes in the format NIfTI-1, one file for header and values."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.errors import UserError

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
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        order = "<" if np.frombuffer(content, "<i4", 1)[0] == 348 else ">"
        count, *sides = np.frombuffer(content, f"{order}i2", 8, offset=40).tolist()
        code = int(np.frombuffer(content, f"{order}i2", 1, offset=70)[0])
        start = int(np.frombuffer(content, f"{order}f4", 1, offset=108)[0])
        stored, kept = DTYPES[code]
        sides = sides[: min(count, 3)]
        values = np.frombuffer(content, order + stored, math.prod(sides), offset=start)
        volume = values.reshape(sides, order="F")  # the first axis runs fastest
        return torch.from_numpy(np.ascontiguousarray(volume, kept))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, IndexError) as error:
        raise UserError(f"{path} must be a NIfTI-1 volume of numbers ({error}).") from error
