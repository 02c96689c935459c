"""The libraries that Horovod was built with, whatever the framework."""

from __future__ import annotations

import ctypes
from importlib import metadata
from typing import Any


def list_libraries(hvd: Any, compiled: Any) -> dict[str, str]:
    """The libraries that Horovod was built with, {name: version}, and its ``controller``: the one that it uses.

    hvd: Horovod's module of a framework, initialized. compiled: its shared library, as ctypes loads it.
    """
    version = metadata.version("horovod")
    versions = {"horovod": version, "controller": "mpi" if hvd.mpi_enabled() else "gloo"}
    if hvd.gloo_built():
        versions["gloo"] = f"of Horovod {version}"  # its sources contain one, without a version
    if hvd.mpi_built():
        versions["mpi"] = _read_mpi_version(compiled)
    if hvd.nccl_built():
        versions["nccl"] = format_nccl_version(hvd.nccl_built())
    return versions


def _read_mpi_version(compiled: Any) -> str:
    """Name and version of the MPI that this process has loaded, such as ``Open MPI v4.1.4``."""
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()  # the longest that an MPI declares: MPICH's
    try:
        compiled.MPI_Get_library_version(text, ctypes.byref(length))
    except AttributeError:
        return "unknown version"
    return " ".join(text.value.decode(errors="replace").splitlines()[0].split(",")[0].split())


def format_nccl_version(code: int) -> str:
    """NCCL's version from its version code: 21805 is 2.18.5; before 2.9 it was 2804 for 2.8.4."""
    major = 10_000 if code >= 10_000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"
