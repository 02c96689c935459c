"""Create a file for a matrix that is filled through a memory mapping."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from study.core.files import AnyPath


def create(path: AnyPath, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float32]]:
    """A new ``.npy`` file of float32, C order, mapped for writing; its disk space is allocated.

    Without the allocation, a disk that fills up would kill the process; with it, this raises `OSError`.
    """
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with open(path, "rb+") as handle:
        os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)
    return matrix
