"""Change Horovod's sources before they are built. Imports the standard library only: nothing is installed yet.

    patch_horovod.py SOURCES        make all changes in the folder SOURCES
    patch_horovod.py                print the version of the changes, which names what is built from them

Each change names the text that it replaces, which must be there exactly once: another version of Horovod has to be
looked at anew.
"""

import hashlib
import sys
from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """In ``file``, ``before`` becomes ``after``."""

    file: str
    before: str
    after: str


CHANGES = [
    # Each process set opens connections of its own. Horovod does not tell it the interface (HOROVOD_GLOO_IFACE): Gloo
    # looks up the host's own name there even where it was told what to use.
    Change(
        "horovod/common/gloo/gloo_context.cc",
        "  attr device_attr;\n  device_attr.iface = gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx = global_context.ctx;\n",
        "  gloo_iface_ = global_context.gloo_iface_;\n"
        "  attr device_attr;\n  device_attr.iface = gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx = global_context.ctx;\n",
    ),
    # getaddrinfo(3) never returns -1: for a name that does not resolve, Gloo read a pointer that was not set.
    Change(
        "third_party/gloo/gloo/transport/tcp/device.cc",
        "  GLOO_ENFORCE_NE(rv, -1);\n",
        '  GLOO_ENFORCE_EQ(rv, 0, "the host name does not resolve, set HOROVOD_GLOO_IFACE: ", attr.hostname);\n',
    ),
    # Horovod and Gloo use std::logic_error and uint8_t without their headers. GCC 13 no longer includes them by itself.
    Change(
        "CMakeLists.txt",
        "project(horovod CXX)\n",
        'project(horovod CXX)\nset(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -include cstdint -include stdexcept")\n',
    ),
    # Debug information takes a third of the build's time, and fifteen times the disk. Both kinds of build have -O3.
    Change("setup.py", "'RelWithDebInfo'", "'Release'"),
    # TensorFlow, and PyTorch by the change below, use the Gloo that is compiled as C++17. Nobody uses this one.
    Change(
        "CMakeLists.txt",
        "    add_subdirectory(third_party/gloo)\n",
        "    add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL)\n",
    ),
    # Horovod 0.28.1 compiles its part for PyTorch as C++14, and PyTorch's headers need C++17.
    Change("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Change(
        "horovod/torch/CMakeLists.txt",
        "(APPEND PYTORCH_LINKER_LIBS gloo)",
        "(APPEND PYTORCH_LINKER_LIBS compatible17_gloo)",
    ),
]


def main(folder: Path) -> None:
    """Make all changes in the sources in ``folder``, or end with a line that names the one that does not fit."""
    for change in CHANGES:
        path = folder / change.file
        text = path.read_text(encoding="utf-8")
        if text.count(change.before) != 1:
            sys.exit(f"error: {path}: {change.before.strip().splitlines()[0]!r} is not there once; see {__file__}")
        path.write_text(text.replace(change.before, change.after), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        print(hashlib.sha256(repr([tuple(change) for change in CHANGES]).encode()).hexdigest()[:8])
