"""Start the processes of a run with their roles, pass on their output, and end them all whatever happens.

Which end is the run's depends on the role: with the chief's end a parameter-server run ends, with a server's or the
chief's loss it fails. A worker of a parameter server that is lost is left to TensorFlow, which goes on with the others
(https://www.tensorflow.org/tutorials/distribute/parameter_server_training, handling task failures). Workers that train
in step end together.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, cast

from study.communication.roles import CHIEF_ENDED, Place
from study.core import checked
from study.core.errors import StudyError
from study.core.files import write_json
from study.core.wording import signal_in_words
from study.launch.spots import HERE, Process, Spot, held
from study.machines.run_layout import CHIEF, SERVER, WORKER, Role

FILE = "processes.json"  # in the run's directory
GRACE_S = 5.0
TOLD_S = 0.5  # within which the ends of two processes on different hosts are told, even if in the other order
ENDING = [signal.SIGTERM, signal.SIGKILL]


def run_all(roles: list[Role], folder: Path, program: list[str], spots: list[Spot] | None = None) -> int:
    """Run ``program`` once per role; returns the exit code of the run and writes ``processes.json`` into ``folder``.

    spots: where each process runs, in the order of roles; all on this host by default.
    """
    spots = spots or [HERE] * len(roles)
    started: list[Process] = []
    copies: list[threading.Thread] = []
    with held([*spots, spots[0]]) as ports:
        addresses = [f"{spot.address}:{port}" for spot, port in zip(spots, ports[:-1], strict=True)]
        # No TCP on one host: then the channel's bytes are none of the run's.
        channel = f"study-{secrets.token_hex(8)}" if set(spots) == {HERE} else f"{spots[0].address}:{ports[-1]}"
        key, hosts = secrets.token_hex(16), tuple(spot.host or spot.address for spot in spots)
        try:
            for number, spot in enumerate(spots):
                place = Place(number, len(roles), channel, key, hosts)
                process = spot.start(program, place.variables(roles, addresses))
                started.append(process)
                copies += [
                    _copied(cast(IO[str], process.popen.stdout), sys.stdout, f"[{number}]<stdout>:"),
                    _copied(cast(IO[str], process.popen.stderr), sys.stderr, f"[{number}]<stderr>:"),
                ]
            lost = _wait(roles, started)
            ended_well = not any(is_fatal(roles, number) for number in lost)
            _end(started, [None, *ENDING] if ended_well else ENDING)
        finally:
            _end(started, ENDING)
    for copy in copies:
        copy.join()
    write_json(folder / FILE, _summary(roles, started, lost))
    main = roles.index(Role(CHIEF, 0)) if Role(CHIEF, 0) in roles else 0
    code = next((_code(started[n]) for n in lost if is_fatal(roles, n)), _code(started[main]))
    return code if code >= 0 else 128 - code


def is_fatal(roles: list[Role], number: int) -> bool:
    """Whether the run cannot go on without a process: all but the workers of a parameter server."""
    return roles[number].kind != WORKER or Role(CHIEF, 0) not in roles


def told(folder: Path) -> dict[str, Any]:
    """What `run_all` wrote, {"processes": [...], "lost": [...]}; empty if it was not used or was killed."""
    if not (folder / FILE).exists():
        return {}
    found = checked.load_json(folder / FILE, "processes")
    if not all(0 <= number < len(found["processes"]) for number in found["lost"]):
        raise StudyError(
            f"{folder / FILE}: lost: a number of a process that there is not; delete {folder} to run again"
        )
    return found


def workers_lost(folder: Path) -> int | None:
    """The number of workers that ended before the run did; None if it is not known."""
    found = told(folder)
    return sum(found["processes"][n]["role"] == WORKER for n in found["lost"]) if found else None


def first_lost(folder: Path) -> tuple[int, str, int] | None:
    """(number, name, exit code) of the process whose end ended the run, else of the first lost worker; None."""
    found = told(folder)
    if not found or not found["lost"]:
        return None
    number = next((n for n in found["lost"] if found["processes"][n]["is_fatal"]), found["lost"][0])
    process = found["processes"][number]
    return number, process["name"], process["exit_code"]


def _summary(roles: list[Role], started: list[Process], lost: list[int]) -> dict[str, Any]:
    """host: by its name for ssh; None is the launching host."""
    return {
        "processes": [
            {
                "name": str(role),
                "role": role.kind,
                "index": role.index,
                "host": process.spot.host,
                "exit_code": process.code,
                "is_fatal": is_fatal(roles, number),
            }
            for number, (role, process) in enumerate(zip(roles, started, strict=True))
        ],
        "lost": lost,
    }


def _copied(source: IO[str], target: IO[str], tag: str) -> threading.Thread:
    """A thread that copies each line with a tag, as horovodrun does."""

    def copy() -> None:
        for line in source:
            target.write(f"{tag}{line}")
            target.flush()

    thread = threading.Thread(target=copy)
    thread.start()
    return thread


def _wait(roles: list[Role], started: list[Process]) -> list[int]:
    """Wait for the end of the run; the numbers of the processes that were lost before it, in their order."""
    lost: list[int] = []
    numbers = {process.popen.pid: number for number, process in enumerate(started)}
    running = set(numbers.values())
    while running:
        # Reading the codes below also takes the ends of processes that ended at the same time; waitid has them no more.
        number = next((n for n in sorted(running) if started[n].popen.returncode is not None), None)
        if number is None:
            # The first to end, in the order in which they end.
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            if ended and ended.si_pid not in numbers:  # it held ports of a host that is lost now, as its processes are
                os.waitpid(ended.si_pid, 0)
                continue
            number = numbers[ended.si_pid] if ended else -1
            started[number].popen.wait()
        code = _code(started[number])
        running.discard(number)
        if code == 0 and roles[number].kind == CHIEF:
            break
        if code in (0, CHIEF_ENDED):
            continue
        # A lost server ends the chief; if both have ended by now, the server was first.
        if any(process.spot.host for process in started):
            time.sleep(TOLD_S)
        gone = [n for n in sorted(running) if started[n].code not in (None, CHIEF_ENDED)]
        servers = [n for n in gone if roles[n].kind == SERVER]
        running.difference_update(servers)
        lost += [*servers, number]
        for each in lost[-1 - len(servers) :]:
            print(f"{roles[each]} (process {each}) ended: {how(_code(started[each]))}", file=sys.stderr, flush=True)
        workers = [n for n, role in enumerate(roles) if role.kind == WORKER]
        if any(is_fatal(roles, n) for n in (*servers, number)) or not running & set(workers):
            break
    return lost


def _code(process: Process) -> int:
    """The exit code of a process that has ended."""
    return cast(int, process.code)


def how(code: int) -> str:
    """How a process ended, in words. code: as `subprocess` gives it."""
    return f"exit code {code}" if code >= 0 else signal_in_words(-code)


def _end(started: list[Process], how_to: list[Any]) -> None:
    """End what still runs with one signal after the other; None is no signal, but time to end by themselves."""
    for number in how_to:
        deadline = time.monotonic() + GRACE_S
        for process in started:
            if number is not None and process.code is None:
                process.popen.send_signal(number)
        while any(process.code is None for process in started) and time.monotonic() < deadline:
            time.sleep(0.02)
