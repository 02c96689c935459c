"""Broadcasts that are under way at the same time, by MPI itself: Horovod carries out one operation after another.

Where Horovod was built with MPI, it has loaded and initialised it, so that its functions can be called as they are, and
no package beside Horovod is needed. What a handle of MPI is differs between its implementations; here they are those of
Open MPI.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from study.core.errors import StudyError

WORLD, BYTE = "ompi_mpi_comm_world", "ompi_mpi_byte"  # the objects to which Open MPI's handles point
NO_STATUSES = None  # MPI_STATUSES_IGNORE of Open MPI


class Broadcasts:
    """Broadcasts among all ranks, in a communicator of their own. An error in MPI ends the run, as MPI does it."""

    def __init__(self, library: Any, version: str) -> None:
        """Make the communicator; all ranks must call.

        library: a ``ctypes.CDLL`` through which MPI is found, initialised for several threads. version: of MPI, for
        messages.

        Raises:
            StudyError: it is another implementation than Open MPI.
        """
        try:
            world, byte = (ctypes.addressof(ctypes.c_char.in_dll(library, name)) for name in (WORLD, BYTE))
        except ValueError:
            raise StudyError(
                f"input_sharing: concurrent_broadcast knows Open MPI only, and this is {version}; use multi_broadcast"
            ) from None
        self._library, self._byte, self._communicator = library, ctypes.c_void_p(byte), ctypes.c_void_p()
        library.MPI_Comm_dup(ctypes.c_void_p(world), ctypes.byref(self._communicator))

    def __call__(self, contents: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Send the uint8 arrays of several ranks, {rank: array}, to all; returns them in that order.

        All ranks must call, with arrays of the same lengths in the same order, which they own. The arrays of other
        ranks are overwritten.
        """
        requests = (ctypes.c_void_p * len(contents))()
        for place, (root, content) in enumerate(contents.items()):
            self._library.MPI_Ibcast(
                content.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(len(content)), self._byte, ctypes.c_int(root),
                self._communicator, ctypes.byref(requests, place * ctypes.sizeof(ctypes.c_void_p)),
            )  # fmt: skip
        self._library.MPI_Waitall(ctypes.c_int(len(contents)), requests, NO_STATUSES)
        return list(contents.values())
