"""A file for a matrix that is filled through its mapping."""

import os
from pathlib import Path

import numpy as np


def create(path, shape):
    """A new ``.npy`` file of float32, C order, mapped to be written; its space on the disk is taken.

    A disk that gets full while it is mapped would kill the process; here it is an `OSError`.
    """
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with open(path, "rb+") as handle:
        os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)
    return matrix
