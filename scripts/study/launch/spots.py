"""Spots, the places of a run's processes: on this host, or on another one through ssh, under the guard there."""

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

ISOLATED_PYTHON = [sys.executable, "-I", "-S"]  # before a program that imports the standard library only


@dataclass(frozen=True)
class Spot:
    """A host on which processes of a run start. host: its name for ssh; None is this host.

    address: at which the others reach it. interface: the one with that address; None on a single host.
    """

    host: str | None
    address: str
    interface: str | None

    def start(self, program: list[str], own_variables: dict[str, str]) -> Process:
        """Start ``program`` on this spot. own_variables: of this process alone, besides those of the run."""
        if self.interface:
            own_variables = {"NCCL_SOCKET_IFNAME": self.interface, **own_variables}
        line = program if self.host is None else [*ISOLATED_PYTHON, remote.__file__, self.host, shlex.join(program)]
        variables = {**os.environ, **own_variables}
        if self.host is not None:
            sent = remote.read_sent()
            variables[remote.SENT] = json.dumps({**sent, "names": [*sent["names"], *own_variables]})
        # In this session, which the guard of the run ends.
        return Process(self, commands.start_program(line, variables, leads_session=False))


HERE = Spot(None, "127.0.0.1", None)


def as_text(spots: list[Spot]) -> str:
    """Spots as one argument of a command line."""
    return json.dumps([astuple(spot) for spot in spots])


def from_text(text: str) -> list[Spot]:
    """The spots in a text of `as_text`."""
    return [Spot(*each) for each in json.loads(text)]


@dataclass(frozen=True)
class Process:
    """A process on a spot; on another host, the ssh that leads there and ends with the process."""

    spot: Spot
    popen: subprocess.Popen[str]

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal as `subprocess` has it; None while it runs.

        255 is ssh's own: it does not reach the host any more.
        """
        code = self.popen.poll()
        if code is None or self.spot.host is None or not 0 < code - 128 < signal.NSIG:
            return code
        return 128 - code


@contextlib.contextmanager
def hold_ports(spots: list[Spot]) -> Iterator[list[int]]:
    """Reserve a port for each spot on its host, while the block runs.

    Raises:
        StudyError: a host gives no ports.
    """
    own_ports = probe.hold_ports(sum(spot.host is None for spot in spots))
    port_holders = {
        spot: spot.start([*ISOLATED_PYTHON, probe.__file__, str(number)], {})
        for spot, number in Counter(spots).items()
        if spot.host is not None
    }
    try:
        numbers_by_spot = {spot: iter(_read_ports(process)) for spot, process in port_holders.items()}
        own_numbers = iter(probe.list_ports(own_ports))
        yield [next(own_numbers if spot.host is None else numbers_by_spot[spot]) for spot in spots]
    finally:
        for process in port_holders.values():
            process.popen.terminate()
        for process in port_holders.values():
            process.popen.communicate()
        for each in own_ports:
            each.close()


def _read_ports(process: Process) -> list[int]:
    """Read the ports that a process on another host prints, after what the shell there prints at login."""
    for line in cast(IO[str], process.popen.stdout):
        if line.startswith("["):
            return cast(list[int], json.loads(line))
    _, errors = process.popen.communicate()
    messages = [line for line in errors.splitlines() if line.strip() and remote.LOST not in line]
    raise StudyError(f"{process.spot.host}: gives no ports: {(messages or ['no answer'])[-1]}")
