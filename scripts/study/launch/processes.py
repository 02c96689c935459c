"""Start the processes of a run with their roles, pass on their output, and end them all whatever happens.

Which end ends the run depends on the role: with the chief's end a parameter-server run ends, with a server's or the
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
from study.core import validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.core.wording import describe_signal
from study.launch.spots import HERE, Process, Spot, hold_ports
from study.machines.run_layout import CHIEF, SERVER, WORKER, Role

FILE = "processes.json"  # in the run's directory
GRACE_S = 5.0
REPORT_DELAY_S = 0.5  # in which the ends of two processes on different hosts become known, even if in another order
END_SIGNALS = [signal.SIGTERM, signal.SIGKILL]


def run_all(roles: list[Role], folder: Path, program: list[str], spots: list[Spot] | None = None) -> int:
    """Run ``program`` once per role; returns the exit code of the run and writes ``processes.json`` into ``folder``.

    spots: where each process runs, in the order of roles; all on this host by default.
    """
    spots = spots or [HERE] * len(roles)
    started: list[Process] = []
    copiers: list[threading.Thread] = []
    with hold_ports([*spots, spots[0]]) as ports:
        addresses = [f"{spot.address}:{port}" for spot, port in zip(spots, ports[:-1], strict=True)]
        # No TCP on one host: then the channel's bytes are none of the run's.
        channel = f"study-{secrets.token_hex(8)}" if set(spots) == {HERE} else f"{spots[0].address}:{ports[-1]}"
        key, hosts = secrets.token_hex(16), tuple(spot.host or spot.address for spot in spots)
        try:
            for number, spot in enumerate(spots):
                place = Place(number, len(roles), channel, key, hosts)
                process = spot.start(program, place.build_variables(roles, addresses))
                started.append(process)
                copiers += [
                    _start_copying(cast(IO[str], process.popen.stdout), sys.stdout, f"[{number}]<stdout>:"),
                    _start_copying(cast(IO[str], process.popen.stderr), sys.stderr, f"[{number}]<stderr>:"),
                ]
            lost = _wait_for_lost(roles, started)
            ended_well = not any(is_fatal(roles, number) for number in lost)
            _end_processes(started, [None, *END_SIGNALS] if ended_well else END_SIGNALS)
        finally:
            _end_processes(started, END_SIGNALS)
    for copy in copiers:
        copy.join()
    write_json(folder / FILE, _summarize_processes(roles, started, lost))
    deciding = roles.index(Role(CHIEF, 0)) if Role(CHIEF, 0) in roles else 0
    code = next((_get_exit_code(started[n]) for n in lost if is_fatal(roles, n)), _get_exit_code(started[deciding]))
    return code if code >= 0 else 128 - code


def is_fatal(roles: list[Role], number: int) -> bool:
    """True if the run cannot go on without a process: all but the workers of a parameter server."""
    return roles[number].kind != WORKER or Role(CHIEF, 0) not in roles


def read_process_results(folder: Path) -> dict[str, Any]:
    """The results of `run_all`, {"processes": [...], "lost": [...]}; empty if it was not used or was killed."""
    if not (folder / FILE).exists():
        return {}
    results = validation.load_valid_json(folder / FILE, "processes")
    if not all(0 <= number < len(results["processes"]) for number in results["lost"]):
        raise StudyError(
            f"{folder / FILE}: lost: a number of a process that there is not; delete {folder} to run again"
        )
    return results


def count_lost_workers(folder: Path) -> int | None:
    """The number of workers that ended before the run did; None if it is not known."""
    results = read_process_results(folder)
    return sum(results["processes"][n]["role"] == WORKER for n in results["lost"]) if results else None


def find_first_lost(folder: Path) -> tuple[int, str, int] | None:
    """(number, name, exit code) of the process whose loss ended the run, else of the first lost worker, else None."""
    results = read_process_results(folder)
    if not results or not results["lost"]:
        return None
    number = next((n for n in results["lost"] if results["processes"][n]["is_fatal"]), results["lost"][0])
    process = results["processes"][number]
    return number, process["name"], process["exit_code"]


def _summarize_processes(roles: list[Role], started: list[Process], lost: list[int]) -> dict[str, Any]:
    """The content of `FILE`: each process with its exit code, and the lost ones. host: None is the launching host."""
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


def _start_copying(source: IO[str], target: IO[str], tag: str) -> threading.Thread:
    """Start a thread that copies each line of output with a tag before it, as horovodrun does."""

    def copy() -> None:
        for line in source:
            target.write(f"{tag}{line}")
            target.flush()

    thread = threading.Thread(target=copy)
    thread.start()
    return thread


def _wait_for_lost(roles: list[Role], started: list[Process]) -> list[int]:
    """Wait for the end of the run; returns the numbers of the processes lost before it, in their order."""
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
        code = _get_exit_code(started[number])
        running.discard(number)
        if code == 0 and roles[number].kind == CHIEF:
            break
        if code in (0, CHIEF_ENDED):
            continue
        # A lost server ends the chief; if both have ended by now, the server was first.
        if any(process.spot.host for process in started):
            time.sleep(REPORT_DELAY_S)
        gone = [n for n in sorted(running) if started[n].code not in (None, CHIEF_ENDED)]
        servers = [n for n in gone if roles[n].kind == SERVER]
        running.difference_update(servers)
        lost += [*servers, number]
        for each in lost[-1 - len(servers) :]:
            print(
                f"{roles[each]} (process {each}) ended: {describe_exit_code(_get_exit_code(started[each]))}",
                file=sys.stderr,
                flush=True,
            )
        workers = [n for n, role in enumerate(roles) if role.kind == WORKER]
        if any(is_fatal(roles, n) for n in (*servers, number)) or not running & set(workers):
            break
    return lost


def _get_exit_code(process: Process) -> int:
    """The exit code of a process that has ended."""
    return cast(int, process.code)


def describe_exit_code(code: int) -> str:
    """An exit code in words. code: as `subprocess` gives it, negative for a signal."""
    return f"exit code {code}" if code >= 0 else describe_signal(-code)


def _end_processes(started: list[Process], signals: list[Any]) -> None:
    """End the processes that still run, with one signal after the other; None gives them time to end by themselves."""
    for number in signals:
        deadline = time.monotonic() + GRACE_S
        for process in started:
            if number is not None and process.code is None:
                process.popen.send_signal(number)
        while any(process.code is None for process in started) and time.monotonic() < deadline:
            time.sleep(0.02)
