"""What this host's Open MPI and Horovod's build have, without loading them."""

import functools
import importlib.util
import mmap
import subprocess
from pathlib import Path

from study.core import commands

ANSWER_S = 60  # for ompi_info
PROGRAM = "ompi_info"  # of Open MPI; other MPIs have none
PART = {"tensorflow": "tensorflow/mpi_lib*.so", "pytorch": "torch/mpi_lib_v2*.so"}  # Horovod's, by framework
MPI_LIBRARY = b"libmpi.so"  # that a part built with Open MPI loads


@functools.cache
def missing() -> str | None:
    """Why this host has no Open MPI, or None."""
    try:
        commands.run([PROGRAM, "--version"], ANSWER_S).check_returncode()
    except (OSError, subprocess.SubprocessError):
        return f"it is Open MPI's, and {PROGRAM} does not run here: this host has another MPI, or none"
    return None


@functools.cache
def has_module(name: str) -> bool:
    """Whether this host's Open MPI, which is not `missing`, has a module of collective operations (``coll``)."""
    answer = commands.run([PROGRAM, "--param", "coll", name, "--level", "1", "--parsable"], ANSWER_S)
    return f"mca:coll:{name}:" in answer.stdout


@functools.cache
def is_in_horovod(framework: str) -> bool:
    """Whether Horovod's part for a framework was built with Open MPI; True where there is no part to look into."""
    spec = importlib.util.find_spec("horovod")
    parts = [
        part for each in (spec and spec.submodule_search_locations) or () for part in Path(each).glob(PART[framework])
    ]
    return not parts or any(map(_names_mpi, parts))


def _names_mpi(part: Path) -> bool:
    with open(part, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(MPI_LIBRARY) >= 0
