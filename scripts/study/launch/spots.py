"""Where the processes of a run are: on this host, or on another one through ssh, under the guard there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import IO, cast

from study.core import commands
from study.core.errors import StudyError
from study.machines import probe, remote

ALONE = [sys.executable, "-I", "-S"]  # before a program that imports the standard library only


@dataclass(frozen=True)
class Spot:
    """A host of a run. host: its name for ssh; None is this host. address: at which the others reach it.

    interface: the one with that address; None on a single host.
    """

    host: str | None
    address: str
    interface: str | None

    def start(self, program: list[str], own: dict[str, str]) -> Process:
        """Start ``program`` here. own: variables of this process alone, besides those of the run."""
        if self.interface:
            own = {"NCCL_SOCKET_IFNAME": self.interface, **own}
        line = program if self.host is None else [*ALONE, remote.__file__, self.host, shlex.join(program)]
        variables = {**os.environ, **own}
        if self.host is not None:
            sent = remote.read_sent()
            variables[remote.SENT] = json.dumps({**sent, "names": [*sent["names"], *own]})
        # In this session, which the guard of the run ends.
        return Process(self, commands.opened(line, variables, leads_session=False))


HERE = Spot(None, "127.0.0.1", None)


def as_text(spots: list[Spot]) -> str:
    """Spots as an argument of a command line."""
    return json.dumps([astuple(spot) for spot in spots])


def from_text(text: str) -> list[Spot]:
    """The spots of `as_text`."""
    return [Spot(*each) for each in json.loads(text)]


@dataclass(frozen=True)
class Process:
    """A process on a spot; of one on another host this is the ssh that leads there, and it ends with it."""

    spot: Spot
    popen: subprocess.Popen[str]

    @property
    def code(self) -> int | None:
        """As ``returncode`` of `subprocess`; None while it runs. Through ssh, a signal is told as 128 plus its number.

        255 is ssh's own: it does not reach the host any more.
        """
        code = self.popen.poll()
        if code is None or self.spot.host is None or not 0 < code - 128 < signal.NSIG:
            return code
        return 128 - code


@contextlib.contextmanager
def held(spots: list[Spot]) -> Iterator[list[int]]:
    """A port for each spot, reserved on its host while the block runs.

    Raises:
        StudyError: a host gives no ports.
    """
    here = probe.hold_ports(sum(spot.host is None for spot in spots))
    asked = {
        spot: spot.start([*ALONE, probe.__file__, str(number)], {})
        for spot, number in Counter(spots).items()
        if spot.host is not None
    }
    try:
        free = {spot: iter(_told(process)) for spot, process in asked.items()}
        own = iter(probe.list_ports(here))
        yield [next(own if spot.host is None else free[spot]) for spot in spots]
    finally:
        for process in asked.values():
            process.popen.terminate()
        for process in asked.values():
            process.popen.communicate()
        for each in here:
            each.close()


def _told(process: Process) -> list[int]:
    """The ports that a host's process prints, after what the shell there prints at login."""
    for line in cast(IO[str], process.popen.stdout):
        if line.startswith("["):
            return cast(list[int], json.loads(line))
    _, errors = process.popen.communicate()
    said = [line for line in errors.splitlines() if line.strip() and remote.LOST not in line]
    raise StudyError(f"{process.spot.host}: gives no ports: {(said or ['no answer'])[-1]}")
