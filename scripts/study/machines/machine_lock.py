"""One lock per machine and user: timed runs and measurements of all folders and clones wait for each other.

    python -I -m study.machines.machine_lock JSON    on another host: holds the lock there until standard input ends

Two runs that share a machine's cores measure each other. Snakemake keeps the runs of one folder apart; this lock keeps
apart those of other folders, other clones and other workflows of the same user. Batch jobs do not take it: they have
nodes of their own.

The lock is flock(2) on a file in a folder whose name depends on nothing but the user: not on TMPDIR, HOME or the
results folder. The file tells who holds it. With it goes a name in the kernel (`study.core.locks.claim_name`), for a
process with a /tmp of its own (systemd's PrivateTmp, a container that shares the network), and in case the file is
removed. Both end with the last process that holds them, so a killed run leaves no stale lock.

Other users can make files in such a folder and bind such a name. What is not this user's is told and passed over: it
can be no run that this lock keeps apart, and its owner would choose how long everybody waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from study.core import locks, ownership
from study.core.errors import StudyError, exit_with_message
from study.machines import remote

VARIABLE = "STUDY_LOCKS"  # a folder that takes the place of the usual one, such as one that a container shares
FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108  the first that can be used; on every Linux, for every user
NAME = "timed-runs"
POLL_S = 0.5
REMINDER_S = 600.0  # between two reminders of what is waited for
MARGIN_S = 600.0  # beyond the time that a holder gave itself, after which it is taken for stuck
UNKNOWN_S = 3600.0  # the longest wait for a holder that does not say how long it takes
START_S, BEGUN = 60.0, "begun"  # for another host's process to begin, and what it then says
LINK = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")  # a host that is lost ends the wait for it


@dataclass(frozen=True)
class Held:
    """The lock of one host, or why there is none. descriptors: to be held by all that runs under the lock.

    reason: None if the lock is held. waited_s: until then.
    """

    file: str | None
    reason: str | None
    waited_s: float
    descriptors: tuple[int, ...] = ()
    host: str | None = None  # another host; None is this one

    def facts(self) -> dict[str, Any]:
        """All but the descriptors, as plain values."""
        return {key: value for key, value in asdict(self).items() if key != "descriptors"}

    def as_dict(self) -> dict[str, Any]:
        """The entry of a provenance for this lock alone; see `summarize_locks`."""
        return summarize_locks([self])


def summarize_locks(locks_held: Sequence[Held]) -> dict[str, Any]:
    """The entry of locks in a provenance: whether all are held, else why not; and each one's `Held.facts`."""
    reasons = [each.reason for each in locks_held if each.reason]
    return {
        "held": not reasons,
        "reason": reasons[0] if reasons else None,
        "locks": [each.facts() for each in locks_held],
    }


@contextlib.contextmanager
def hold_lock(purpose: str, limit_s: float) -> Iterator[Held]:
    """Hold this machine's lock while the block runs; waits for whoever holds it, and says for whom.

    Args:
        purpose: what is run and where, for those who wait.
        limit_s: the longest time that the block takes; those who wait give up some time after it.

    Raises:
        StudyError: the holder has held it for longer than it may.
    """
    lock = _take(purpose, limit_s)
    try:
        yield lock
    finally:
        for each in lock.descriptors:
            os.close(each)


def find_folder(variables: Mapping[str, str] = os.environ) -> Path | None:
    """The folder for this user's locks, made if it is not there; None if there is no place for one.

    A folder of that name that is not this user's alone is not used: in /tmp everybody can make one.
    """
    if chosen := variables.get(VARIABLE):
        Path(chosen).mkdir(parents=True, exist_ok=True)
        return Path(chosen)
    for place in FOLDERS:
        path = Path(place) / f"study-locks-{os.getuid()}"
        with contextlib.suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            os.close(ownership.open_own(path, os.O_RDONLY | os.O_DIRECTORY))
            if os.access(path, os.W_OK | os.X_OK):
                return path
    return None


def _take(purpose: str, limit_s: float) -> Held:
    try:
        place = find_folder()
    except OSError as error:
        raise StudyError(
            f"{VARIABLE}: {error.filename}: {error.strerror}; name a folder that you may write to"
        ) from None
    if place is None:
        return _make_unlocked(f"no folder for locks can be made in {', '.join(FOLDERS)}; set {VARIABLE} to one", None)
    file, began, waiting = place / NAME, time.monotonic(), _Waiting()
    while True:
        try:
            descriptor = ownership.open_own(file, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            return _make_unlocked(f"{file}: {error.strerror}", str(file))
        of_file, of_name = locks.try_lock(descriptor), locks.Lock.TAKEN
        sockets: list[socket.socket] = []
        is_file = _is_the_file(descriptor, file)
        if is_file and of_file is not locks.Lock.TAKEN:
            of_name, sockets = locks.claim_name(_make_name(), _format_note(limit_s))
        if of_name is not locks.Lock.TAKEN and locks.Lock.HELD in (of_file, of_name):
            if of_name is locks.Lock.FOREIGN:
                _warn(
                    f"another user has taken the name @{_make_name()} (ss -lx shows it), which is passed over: runs of "
                    "yours with a /tmp of their own are not waited for"
                )
            _write_note(descriptor, purpose, limit_s)
            descriptors = (descriptor, *(each.detach() for each in sockets))
            return Held(str(file), None, round(time.monotonic() - began, 3), descriptors)
        holder = _read_holder(descriptor) if of_file is locks.Lock.TAKEN else _read_holder_by_name()
        os.close(descriptor)
        if of_name in (locks.Lock.MISSING, locks.Lock.FOREIGN):
            return _make_unlocked(f"{file}: its file system has no locks (flock)", str(file))
        if is_file:
            waiting.check_holder(holder, file)
            time.sleep(POLL_S)


def _make_unlocked(reason: str, file: str | None) -> Held:
    _warn(f"this run cannot be kept apart from timed runs of other folders: {reason}; start no others meanwhile")
    return Held(file, reason, 0.0)


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def _is_the_file(descriptor: int, file: Path) -> bool:
    """Whether the locked file still has its name: what cleans /tmp may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def _write_note(descriptor: int, purpose: str, limit_s: float) -> None:
    """Write down who holds the lock, for those who wait. until_s: of the clock that a machine's processes share."""
    note = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose, "since": time.strftime("%F %T"),
            "until_s": time.monotonic() + limit_s}  # fmt: skip
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)


def _read_holder(descriptor: int) -> dict[str, Any]:
    """The note that the holder wrote; empty if it has not yet, or if it cannot be read."""
    try:
        note = json.loads(os.pread(descriptor, 1 << 16, 0))
        until_s = float(note["until_s"])
        return {**note, "until_s": until_s} if math.isfinite(until_s) else {}
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return {}


def _make_name() -> str:
    """Name of the lock in the kernel: per user, and per folder that takes the place of the usual one."""
    chosen = os.environ.get(VARIABLE, "")
    return f"study-{NAME}-{os.getuid()}" + (f"-{hashlib.sha256(chosen.encode()).hexdigest()[:12]}" if chosen else "")


def _format_note(limit_s: float) -> str:
    return f"{os.getpid()}:{time.monotonic() + limit_s:.0f}"


def _read_holder_by_name() -> dict[str, Any]:
    """The holder (`_read_holder`) whose file cannot be seen here, by the name in the kernel."""
    note = locks.read_note(_make_name())
    if not note or not re.fullmatch(r"[0-9]{1,10}:[0-9]{1,15}", note):
        return {}
    pid, until = note.split(":")
    return {"pid": int(pid), "host": socket.gethostname(), "purpose": "with another /tmp", "since": "an unknown time",
            "until_s": float(until)}  # fmt: skip


class _Waiting:
    """A wait for the lock: prints who holds it, and ends if the holder is stuck."""

    def __init__(self) -> None:
        self.holder: dict[str, Any] | None = None
        self.since = self.reminded = 0.0

    def check_holder(self, holder: dict[str, Any], file: Path) -> None:
        """Print now and then who holds the lock; raise `StudyError` if this holder should have ended long ago."""
        now = time.monotonic()
        if holder != self.holder:
            self.holder, self.since, self.reminded = holder, now, 0.0
        until = holder["until_s"] + MARGIN_S if holder else self.since + UNKNOWN_S
        who = "another process"
        if holder:
            place = f"{holder.get('host')} ({holder.get('purpose')})"
            who = f"process {holder.get('pid')} on {place}, since {holder.get('since')}"
        if now > until:
            raise StudyError(
                f"{file}: {who}, keeps timed runs of this machine waiting for longer than its own time limit; see "
                "whether it still works, end it, then start again"
            )
        if not self.reminded or now - self.reminded >= REMINDER_S:
            self.reminded = now
            print(f"waiting for the end of {who}: timed runs do not overlap on a machine", file=sys.stderr, flush=True)


@contextlib.contextmanager
def hold_lock_on(host: str | None, purpose: str, limit_s: float) -> Iterator[Held]:
    """Hold the lock of a host that ssh reaches, see `hold_lock`; None is this host."""
    with hold_lock(purpose, limit_s) if host is None else _hold_lock_there(host, purpose, limit_s) as lock:
        yield lock


@contextlib.contextmanager
def _hold_lock_there(host: str, purpose: str, limit_s: float) -> Iterator[Held]:
    order = json.dumps({"purpose": f"{purpose}, started on {socket.gethostname()}", "limit_s": limit_s})
    command = shlex.join([sys.executable, "-I", "-m", __name__, order])
    process = subprocess.Popen([*remote.SSH, *LINK, host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, errors="replace")  # fmt: skip
    # Until it has begun; from then on it ends its wait by itself, and ssh ends if the host is lost.
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    try:
        lines = cast(IO[str], process.stdout)
        if next((line for line in lines if line.strip() == BEGUN), None):
            timer.cancel()
        answer = next((line for line in lines if line.startswith("{")), None)
        if answer is None:
            raise StudyError(f"{host}: timed runs there could not be kept apart: see the message above")
        yield Held(**{**json.loads(answer), "host": host})
    finally:
        timer.cancel()
        with contextlib.suppress(OSError):
            cast(IO[str], process.stdin).close()  # which ends it there
        try:
            process.wait(MARGIN_S / 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Hold the lock for a run that another host launches."""
    order = json.loads(sys.argv[1])
    print(BEGUN, flush=True)
    with hold_lock(order["purpose"], order["limit_s"]) as lock:
        print(json.dumps(lock.facts()), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    exit_with_message(main)
