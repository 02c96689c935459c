"""Set limits on this host, keep them until standard input ends, and put back what was there; a process of its own.

It outlives the launch, which may get SIGKILL. A second process puts everything back if the first one is killed. If
both are, the values from before are still in a file: the next run with limits on this host puts them back first, and
so does ``python scripts/hold_limits.py --restore``. A restart of the host ends all limits, and the file counts no more.

The first line of standard input is the order, in JSON: ``asked``, {limit: value}; ``variables``, of the ranks, that
tell their GPUs; ``silence_s``, the longest time without a byte afterwards, None for no limit. The first line of output
is the answer: ``settings``, or ``refused`` with the reason; the second, after the end, tells what was ``restored``, and
what each device said before that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from study.core.boot import boot_id
from study.core.errors import StudyError
from study.core.files import write_json
from study.machines import machine_lock
from study.machines.limits import LIMITS, Place, Refused

JOURNAL, LOCK = "limits.json", "limits.lock"
ORDER_S = 60.0
TAKEN_S = 15.0  # the longest wait for the holder of an earlier run, which puts things back
POLL_S = 0.1


@dataclass
class Setting:
    """One limit on one device: what it was before, what was asked for, and what was read back.

    held: whether it still was in effect at the end of the run, by ``at_end``; None if that could not be read.
    """

    limit: str
    device: str
    before: Any
    asked: Any
    read_back: Any = None
    at_end: Any = None
    held: bool | None = None
    restored: bool | None = None
    why: str | None = None  # it was not restored

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))


def main(place: Place | None = None) -> None:
    """Obey the order on standard input."""
    for each_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the ranks
        signal.signal(each_signal, signal.SIG_IGN)
    place = place or Place()
    order = _order()
    place = replace(place, variables=order["variables"])
    try:
        with _alone():
            restore_left(place)
            with _watched(place) as told:
                made = _set(order["asked"], place)
                _say({"settings": [each.as_dict() for each in made]})
                _wait_for_end(order["silence_s"])
                at_end = _at_end(made, place)
                _say({"restored": [{**each.as_dict(), **at_end[each.limit, each.device]}
                                   for each in restore_left(place)]})  # fmt: skip
                os.write(told, b".")
    except StudyError as error:
        _say({"refused": str(error)})


def restore_left(place: Place) -> list[Setting]:
    """Put back what the journal of this host has, the last first, and remove it; nothing if there is none.

    A setting that cannot be restored says why, and the others are restored all the same.
    """
    path = _folder() / JOURNAL
    settings = _journal(path)
    for each in reversed(settings):
        try:
            LIMITS[each.limit].restore(place, each.device, each.before)
            each.restored = True
        except (Refused, KeyError) as error:
            each.restored, each.why = False, str(error)
    if left := [each for each in settings if not each.restored]:
        _write_journal(left)  # for another try
    else:
        path.unlink(missing_ok=True)
    return settings


def restore_abandoned(place: Place) -> list[Setting]:
    """As `restore_left`, unless a process of the run that set the limits is still there; costs a look at a file."""
    folder = machine_lock.folder()
    if folder is None or not (folder / JOURNAL).exists():
        return []
    try:
        with _alone(0.0):
            return restore_left(place)
    except Refused:
        return []


def _set(asked: dict[str, Any], place: Place) -> list[Setting]:
    """Check all, note what was before, set all and read back; raises `Refused`, with everything put back."""
    settings = []
    for name, value in asked.items():
        limit = LIMITS[name]
        for device in limit.devices(place):
            try:
                limit.check(place, device, value)
                settings.append(Setting(name, device, limit.current(place, device), value))
            except Refused as refused:
                raise Refused(f"{name}: {refused}") from None
    _write_journal(settings)
    for each in settings:
        limit = LIMITS[each.limit]
        try:
            limit.write(place, each.device, each.asked)
            each.read_back = limit.read_back(place, each.device)
            if not limit.agrees(each.asked, each.read_back):
                raise Refused(
                    f"{each.asked} {limit.unit} on {each.device} did not take effect: read back {each.read_back}"
                )
        except Refused as refused:
            restore_left(place)
            raise Refused(f"{each.limit}: {refused}") from None
    return settings


def _at_end(settings: list[Setting], place: Place) -> dict[tuple[str, str], dict[str, Any]]:
    """``at_end`` and ``held`` of each setting; what cannot be read must not keep anything from being put back."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in settings:
        limit = LIMITS[each.limit]
        try:
            at_end = limit.read_back(place, each.device)
            told = {"at_end": at_end, "held": limit.agrees(each.asked, at_end)}
        except Refused:
            told = {"at_end": None, "held": None}
        found[each.limit, each.device] = told
    return found


def _write_journal(settings: list[Setting]) -> None:
    content = {"boot_id": boot_id() or "", "settings": [each.as_dict() for each in settings]}
    write_json(_folder() / JOURNAL, content)


def _journal(path: Path) -> list[Setting]:
    """The settings of a journal; none if there is none, it is of an earlier boot, or it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [Setting(**each) for each in content["settings"]] if content["boot_id"] == (boot_id() or "") else []
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"warning: {path}: limits of an earlier run cannot be put back: {error!r}", file=sys.stderr, flush=True)
        return []


@contextlib.contextmanager
def _alone(most_s: float = TAKEN_S) -> Iterator[None]:
    """One holder at a time on a host; the process that watches over it counts too. Raises `Refused` after a while."""
    descriptor = os.open(_folder() / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + most_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise Refused("another run of yours holds limits on this host; let it end first") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _watched(place: Place) -> Iterator[int]:
    """Let a second process put back what the journal has if this one is killed; yields what tells it that all is well.

    It holds the lock too, so that no other run sets limits before it has put things back.
    """
    ends, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(told)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # whoever waits for the end of the output waits for the first process only
            os.dup2(null, number)
        if not os.read(ends, 1):
            restore_left(place)
        os._exit(0)
    os.close(ends)
    try:
        yield told
    finally:
        os.close(told)  # without a byte: it finds no journal, or one that must be put back


def _folder() -> Path:
    found = machine_lock.folder()
    if found is None:
        raise Refused(f"no folder for what must be put back; set {machine_lock.VARIABLE} to one of this host")
    return found


def _order() -> dict[str, Any]:
    """The first line of standard input, read without a buffer, so that `_wait_for_end` sees what follows."""
    text, until = b"", time.monotonic() + ORDER_S
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        more = os.read(0, 1) if ready else b""
        if not more:
            sys.exit("error: no order on standard input; the launch of a run gives it")
        text += more
    return {"silence_s": None, "variables": {}, **json.loads(text)}


def _wait_for_end(silence_s: float | None) -> None:
    """Wait for the end of standard input, or until nothing has come for so long."""
    while True:
        ready, _, _ = select.select([0], [], [], silence_s)
        if not ready or not os.read(0, 4096):
            return


def _say(answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to hear what was restored
        print(json.dumps(answer), flush=True)
