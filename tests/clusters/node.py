"""A stand-in for a node of a cluster: a command on it sees the node's own name, boot id, clock and power meters.

    node.py FOLDER RANKS_PER_NODE COMMAND...    starts the command of one rank, by HOROVOD_RANK, on its node
    node.py meter FOLDER NUMBER WATTS           is the meter of node NUMBER, until its standard input is closed

The node's monotonic clock is ahead by `AHEAD_S` per number. Its meters are Cray's files with a steady power, which the
kernel does not have here. All of this is in namespaces of the command, which only root may make; nothing outside of
them is changed.
"""

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

AHEAD_S = 1000
UPDATE_S = 0.02
COUNTERS = "sys/cray/pm_counters"


def boot_id(number):
    """Of a node, the first one being 1."""
    return f"{number:08d}-0000-4000-8000-000000000000"


def meter(folder, number, watts):
    """Keep the node's counters: its power, and its energy since the meter began."""
    counters = Path(folder) / f"n{number}"
    counters.mkdir(parents=True)
    begun, updates = time.monotonic(), 0
    while True:
        energy = round(watts * (time.monotonic() - begun))
        for name, text in (("power", f"{watts} W"), ("energy", f"{energy} J"), ("freshness", str(updates))):
            (counters / f".{name}").write_text(f"{text}\n")
            (counters / f".{name}").rename(counters / name)
        updates += 1
        if select.select([sys.stdin], [], [], UPDATE_S)[0]:
            return


def enter(folder, a_node, command):
    """Go on inside the node of this rank."""
    number = int(os.environ["HOROVOD_RANK"]) // a_node + 1
    ahead = str(AHEAD_S * number)
    line = ["unshare", "--uts", "--mount", "--time", "--monotonic", ahead, "--boottime", ahead, "--fork"]
    line += ["--kill-child", sys.executable, __file__, "inside", folder, str(number), *command]
    os.execvp(line[0], line)


def inside(folder, number, command):
    """Give the namespaces what the node has, and become the command."""
    place, name = Path(folder), f"n{number}"
    socket.sethostname(name)
    files = place / f"files-{os.getpid()}"
    files.mkdir()
    (files / "boot_id").write_text(f"{boot_id(number)}\n")
    (files / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {name}\n")
    _mount("--bind", files / "boot_id", "/proc/sys/kernel/random/boot_id")
    _mount("--bind", files / "hosts", "/etc/hosts")
    _mount("-t", "tmpfs", "tmpfs", files)  # a /sys with one folder more
    for path in Path("/sys").iterdir():
        (files / path.name).mkdir()
        _mount("--rbind", path, files / path.name)
    counters = files / Path(COUNTERS).relative_to("sys")
    counters.mkdir(parents=True)
    _mount("--bind", place / name, counters)
    _mount("--rbind", files, "/sys")
    os.execvp(command[0], command)


def _mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "meter":
        meter(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "inside":
        inside(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        enter(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
