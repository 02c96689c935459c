"""Check the hosts of a run before it starts, all at once: each problem is one line with the host and the remedy.

A run on several hosts needs ssh without a password, the same files under the same paths, the same code, packages and
data, and a network interface that connects them. Clocks need not agree: their offsets are measured, and used wherever
times of hosts are compared.
"""

from __future__ import annotations

import collections
import contextlib
import ipaddress
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from study.core import commands
from study.core.errors import StudyError, StudyErrors
from study.core.paths import ROOT
from study.machines import probe, remote
from study.machines.run_layout import INTERFACE, Links

LIMIT_S = 30  # for a host's answer; one that is busy takes long, one that is down is told sooner by ssh
CLOCK_LIMIT_S = 60  # a larger offset is a mistake of that host's set-up, and spoils the times of files
CLOCK_READINGS = 10
HOST_FACTS = ("hostname", "boot_id", "cpu", "cores", "cores_allowed", "physical_cores_allowed", "cpu_quota_cores",
              "memory_mb", "memory_limit_mb", "congestion_control")  # by the host itself  # fmt: skip
NO_FOLDER, NO_PYTHON = 71, 72  # exit codes of `_make_command`

Facts = dict[str, Any]  # the answer of `study.machines.probe`, and offset_s and uncertainty_s of the clock


@dataclass(frozen=True)
class Host:
    """One host of a run, for its record. hostname: what it calls itself, as in phases and telemetry.

    clock_offset_s: its clock minus the launching host's; its uncertainty is half the round trip. boot_id: equal
    for hosts that are one machine. Cores and memory: see `study.core.cores`.
    congestion_control: of its TCP connections.
    """

    name: str
    ranks: int
    hostname: str
    boot_id: str
    cpu: str
    cores: int
    cores_allowed: int
    physical_cores_allowed: int | None
    cpu_quota_cores: float | None
    memory_mb: float
    memory_limit_mb: float | None
    congestion_control: str
    clock_offset_s: float
    clock_uncertainty_s: float


def check_hosts(
    placement: dict[str, int], folder: Path, data: Iterable[str], given: dict[str, str] | str | None
) -> tuple[list[Host], Links | None]:
    """Check all hosts of a run, and return their facts and links; no links if all ranks run on this host.

    Args:
        placement: {host: ranks}.
        folder: where the run's directory will be; every host must see it.
        data: the files that the run reads.
        given: the network interface, of all hosts or {host: name}; None to use the one through which ssh reached each.

    Raises:
        StudyErrors: with a line for each problem.
    """
    request = {"folder": str(ROOT), "data": sorted(data)}
    with _make_token(folder) as token:
        request["token"] = str(token)
        with ThreadPoolExecutor(len(placement) + 1) as pool:
            own = pool.submit(_examine, None, request)
            local = dict(zip(placement, pool.map(is_here, placement), strict=True))
            pending = {name: own if local[name] else pool.submit(_examine, name, request) for name in placement}
            here, answers = own.result(), {name: each.result() for name, each in pending.items()}
    if isinstance(here, str):
        raise StudyError(f"this host cannot be examined: {here}")
    names = collections.Counter(facts["hostname"] for facts in answers.values() if not isinstance(facts, str))
    shared = {name for name, hosts in names.items() if hosts > 1}
    problems = [line for name, facts in answers.items() for line in _list_problems(name, facts, here, shared)]
    problems += _find_twins(answers)
    links: Links | list[str] | None = None
    if not problems and not all(local.values()):
        links = _make_links(cast(dict[str, Facts], answers), local, here, given)
        problems += links if isinstance(links, list) else []
    if problems:
        raise StudyErrors(problems)
    hosts = [_make_host(name, placement[name], cast(Facts, facts)) for name, facts in answers.items()]
    return hosts, cast(Links | None, links)


def is_here(host: str) -> bool:
    """Whether ``host`` is the host that this process runs on."""
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {"::1", *(address for _, (address, _) in probe.list_interfaces())}
    return any(str(address).startswith("127.") or address in own for address in addresses)


@contextlib.contextmanager
def _make_token(folder: Path) -> Iterator[Path]:
    """A new file beside the run's directory while the block runs."""
    path = folder.resolve().parent / f".{folder.name[:100]}.visible-{os.getpid()}-{time.monotonic_ns()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _examine(host: str | None, request: Facts) -> Facts | str:
    """The host's facts, or its problem in words; None is this host."""
    program = [sys.executable, "-I", probe.__file__]
    line = program if host is None else [*remote.SSH, host, _make_command(program)]
    process = commands.start_program(line, reads=True)
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    try:
        facts = _converse(process, request)
    except (OSError, ValueError):
        facts = None
    finally:
        is_late = not timer.is_alive()
        timer.cancel()
        errors = commands.kill_session(process)
    return facts or _explain_silence(host or "this host", process.returncode, is_late, errors)


def _make_command(program: list[str]) -> str:
    """The command for the host's shell, whichever that is."""
    python, folder = shlex.quote(sys.executable), shlex.quote(str(ROOT))
    script = (
        f"cd {folder} 2>/dev/null && test -r {shlex.quote(probe.__file__)} || exit {NO_FOLDER}; "
        f"test -x {python} || exit {NO_PYTHON}; exec {shlex.join(program)}"
    )
    return shlex.join(["/bin/sh", "-c", script])


def _converse(process: subprocess.Popen[str], request: Facts) -> Facts | None:
    """Request, answer, and readings of the clock; None if there was no answer."""
    to, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
    _say(to, json.dumps(request))
    answer = next((line for line in answers if line.startswith("{")), None)  # after what the shell prints at login
    if answer is None:
        process.wait()
        return None

    def read() -> int:
        _say(to, "")
        return int(answers.readline())

    return {**json.loads(answer), **_measure_clock(read)}


def _say(to: IO[str], text: str) -> None:
    to.write(text + "\n")
    to.flush()


def _measure_clock(read: Callable[[], int]) -> dict[str, float]:
    """Offset of another clock and its uncertainty, seconds, from the reading with the shortest round trip.

    read: returns that clock's time, nanoseconds since 1970.
    """
    readings = []
    for _ in range(CLOCK_READINGS):
        before, began = time.time_ns(), time.monotonic_ns()
        there = read()
        trip = time.monotonic_ns() - began
        readings.append((trip, there - before - trip // 2))
    trip, offset = min(readings)
    return {"offset_s": offset / 1e9, "uncertainty_s": trip / 2e9}


def _explain_silence(host: str, code: int, is_late: bool, errors: str) -> str:
    """Why a host gave no answer, and the remedy."""
    message = ([line.strip() for line in errors.splitlines() if line.strip()] or [f"exit code {code}"])[-1]
    if is_late:
        return f"no answer within {LIMIT_S} s; check that it is up, and that `ssh {host}` works"
    if code == NO_FOLDER:
        return f"does not see {ROOT}; all hosts need it under this path, on a file system that they share"
    if code == NO_PYTHON:
        return f"has no {sys.executable}; run make setup in {ROOT} there"
    if code != 255:
        return f"{sys.executable} does not run there ({message}); run make setup in {ROOT} there"
    if "Permission denied" in message:
        return f"ssh asks for a password; let it log in by key: ssh-copy-id {host}"
    if "Host key verification failed" in message:
        return f"ssh does not know its key; log in once by hand: ssh {host}"
    return f"ssh cannot reach it ({message}); check its name and that it is up: ssh {host}"


def _list_problems(name: str, facts: Facts | str, here: Facts, shared: Collection[str]) -> Iterator[str]:
    """One line for each problem of a host. shared: names of several hosts, which lead elsewhere on some of them."""
    if isinstance(facts, str):
        yield f"{name}: {facts}"
        return
    if not facts["resolves"] and facts["hostname"] not in shared:
        own = facts["hostname"]
        why = "does not resolve there, or to an address that it does not have"
        yield f"{name}: its own name, {own}, {why}; correct it in /etc/hosts on {name}"
    if not facts["sees_token"]:
        yield f"{name}: does not see the results folder; it must be on a file system that all hosts share"
    commits = {facts["commit"], here["commit"]} - {""}  # empty where git is not installed
    if len(commits) > 1:
        yield (
            f"{name}: its commit is {facts['commit'][:10]}, here it is {here['commit'][:10]}; bring both to the same "
            "commit"
        )
    elif facts["code"] != here["code"]:
        yield f"{name}: files under scripts/ differ from those here; see git status there and here"
    yield from _compare_packages(name, set(facts["packages"]), set(here["packages"]))
    different = [path for path, digest in here["data"].items() if facts["data"][path] != digest]
    if different:
        path = different[0]
        yield f"{name}: {path} is not the same there ({facts['data'][path]}, here {here['data'][path]}); copy it again"
    if abs(facts["offset_s"]) > CLOCK_LIMIT_S:
        yield f"{name}: its clock is {facts['offset_s']:+.0f} s off; set it: timedatectl set-ntp true"


def _compare_packages(name: str, there: set[str], here: set[str]) -> Iterator[str]:
    different = sorted(there ^ here)
    if different:
        more = f" and {len(different) - 2} others" if len(different) > 2 else ""
        yield (
            f"{name}: its Python packages differ ({', '.join(different[:2])}{more} only on one side); "
            f"run make setup in {ROOT} there"
        )


def _find_twins(answers: dict[str, Facts | str]) -> Iterator[str]:
    """Hosts with the same host name: records could not tell them apart."""
    names: dict[str, str] = {}
    for name, facts in answers.items():
        if isinstance(facts, str):
            continue
        if facts["hostname"] in names:
            other = names[facts["hostname"]]
            yield f"{name}: calls itself {facts['hostname']}, as {other} does; list a host once, or rename one"
        names.setdefault(facts["hostname"], name)


def _make_links(
    answers: dict[str, Facts], local: dict[str, bool], here: Facts, chosen: dict[str, str] | str | None
) -> Links | list[str]:
    """The links, or a line for each host whose interface is missing or unknown. local: which hosts are this host.

    A host's interface is the given one, or the one with the address that ssh reached.
    """
    # This host's own SSH_CONNECTION leads to wherever its user sits, so only the other hosts' tell about the links.
    client = next((address for name in answers if not local[name] for address in answers[name]["reached_from"]), None)
    own = chosen if isinstance(chosen, str) else _find_interface(here, [client])
    named = chosen if isinstance(chosen, dict) else dict.fromkeys(answers, chosen)
    names = {
        name: named.get(name) or (own if local[name] else _find_interface(facts, facts["reached_at"]))
        for name, facts in answers.items()
    }
    problems = [
        line
        for name, facts, interface in [
            ("this host", here, own),
            *((each, answers[each], names[each]) for each in answers),
        ]
        for line in _check_interface(name, facts, interface)
    ]
    if problems:
        return list(dict.fromkeys(problems))
    away = next(name for name in answers if not local[name])
    address, mask = answers[away]["interfaces"][cast(str, names[away])]
    network = ipaddress.IPv4Network((address, mask), strict=False)
    addresses = {name: facts["interfaces"][cast(str, names[name])][0] for name, facts in answers.items()}
    return Links(cast(dict[str, str], names), cast(str, own), str(network), addresses)


def _find_interface(facts: Facts, addresses: list[str | None]) -> str | None:
    """The host's interface with one of the addresses; None if there is none."""
    return next((name for name, (address, _) in facts["interfaces"].items() if address in addresses), None)


def _check_interface(name: str, facts: Facts, interface: str | None) -> Iterator[str]:
    has = ", ".join(f"{each} ({address})" for each, (address, _) in facts["interfaces"].items())
    if interface is None:
        yield f"{name}: its network interface is not known; name one under interface in the machine file; it has {has}"
    elif interface not in facts["interfaces"]:
        yield f"{name}: has no interface {interface} with an IPv4 address, but {has}; see interface in the machine file"
    elif not INTERFACE.fullmatch(interface):
        yield f"{name}: its interface {interface!r} has a name that is unsafe on command lines; rename it: ip link set"


def _make_host(name: str, ranks: int, facts: Facts) -> Host:
    return Host(
        name=name,
        ranks=ranks,
        **{key: facts[key] for key in HOST_FACTS},
        clock_offset_s=facts["offset_s"],
        clock_uncertainty_s=facts["uncertainty_s"],
    )
