"""The limits of a run on each of its hosts: set before its ranks start, put back after they have ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from study.core.boot import boot_id
from study.core.errors import StudyError
from study.core.files import write_json
from study.core.paths import SCRIPTS
from study.experiment.definition import RunDefinition
from study.machines import host_check, limits, remote
from study.machines.limits import holder

FILE = "limits.json"  # in the run's directory
PROGRAM = str(SCRIPTS / "hold_limits.py")
ANSWER_S = holder.TAKEN_S + 45.0  # a driver may take seconds to begin
GPU = "CUDA_VISIBLE_DEVICES"


@contextlib.contextmanager
def held(
    run: RunDefinition, hosts: Sequence[host_check.Host], folder: Path, variables: Mapping[str, str], stall_s: float
) -> Iterator[None]:
    """Hold the limits that the run asks for while the block runs, on every machine that its hosts are.

    Args:
        run: its grid keys ask for the limits.
        hosts: the run's listed hosts; none where its ranks run on this host only.
        folder: the run's directory, which gets `FILE`.
        variables: the ranks' environment.
        stall_s: the longest time without a heartbeat of a rank, which limits the silence of another host.

    Raises:
        StudyError: a host refuses a limit; those that others had set are put back.
    """
    asked = limits.asked(run.parameters)
    _put_back_what_is_left()
    if not asked:
        yield
        return
    order = {"asked": asked, "variables": {GPU: variables[GPU]} if GPU in variables else {}}
    own = boot_id() or ""
    by_machine = {host.boot_id: host.name for host in reversed(hosts)} or {own: ""}  # one machine sets them once
    found: list[dict[str, Any]] = []
    holders: list[_Holder] = []
    try:
        for machine, name in by_machine.items():
            holders.append(_Holder(None if machine == own else name, order, remote.silence_s(stall_s)))
        try:
            found = [setting for each in holders for setting in each.set()]
        except StudyError:
            (folder / "run.yaml").unlink(missing_ok=True)  # so that the run does not count as launched
            raise
        yield
    finally:
        restored = [setting for each in holders for setting in each.end()]
        if found:
            write_json(folder / FILE, {"settings": restored})
            _tell(restored)


def _put_back_what_is_left() -> None:
    """Limits of an earlier run on this host whose processes were all killed must not hold for this one."""
    for each in holder.restore_abandoned(limits.Place()):
        state = "put back" if each.restored else f"NOT put back: {each.why}"
        print(f"warning: {each.limit} on {each.device}, of an earlier run that was killed: {state}", file=sys.stderr)


def _tell(settings: list[dict[str, Any]]) -> None:
    for each in settings:
        if each["held"] is False:
            print(
                f"warning: {each['host']}: {each['limit']} on {each['device']} was {each['asked']}, and "
                f"{each['at_end']} at the end of the run: something else changed it",
                file=sys.stderr,
            )
        if not each["restored"]:
            print(
                f"warning: {each['host']}: {each['limit']} on {each['device']} was not put back: {each['why']}",
                file=sys.stderr,
            )


class _Holder:
    """The process that holds the limits of a host. host: its name for ssh; None is this host."""

    def __init__(self, host: str | None, order: Mapping[str, Any], silence_s: float) -> None:
        self._name = host or socket.gethostname()
        line = [sys.executable, PROGRAM]
        if host:
            line = [*remote.SSH, host, shlex.join(line)]
            order = {**order, "silence_s": silence_s}
        self._process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=dict(os.environ)
        )
        self._settings: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._text = b""
        self._say(json.dumps(order).encode() + b"\n")
        if host:
            threading.Thread(target=self._beat, args=(silence_s / remote.BEATS,), daemon=True).start()

    def set(self) -> list[dict[str, Any]]:
        """What was set; raises `StudyError` where it was refused."""
        answer = self._answer() or {"refused": "it did not answer; see the message above"}
        if "refused" in answer:
            raise StudyError(f"{self._name}: {answer['refused']}")
        self._settings = answer["settings"]
        return self._settings

    def end(self) -> list[dict[str, Any]]:
        """Put everything back; the settings with whether that was done."""
        self._ended.set()
        with contextlib.suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()
        told = (self._answer() or {}).get("restored") if self._settings else None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_S)
        lost = {
            "at_end": None,
            "held": None,
            "restored": False,
            "why": "its process did not say so; python scripts/hold_limits.py --restore",
        }
        before = {(each["limit"], each["device"]): each for each in self._settings}
        settings = {(each["limit"], each["device"]): each for each in told or ()}
        return [
            {"host": self._name, **each, **(_result(settings[key]) if key in settings else lost)}
            for key, each in before.items()
        ]

    def _beat(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            self._say(b".")

    def _say(self, content: bytes) -> None:
        to = cast(IO[bytes], self._process.stdin)
        with contextlib.suppress(OSError, ValueError):  # it has ended, which its missing answer shows
            to.write(content)
            to.flush()

    def _answer(self) -> dict[str, Any] | None:
        """Its next line, after what a shell prints at login; None if it ends without one, or takes too long."""
        answers, until = cast(IO[bytes], self._process.stdout).fileno(), time.monotonic() + ANSWER_S
        while True:
            line, end, rest = self._text.partition(b"\n")
            if end:
                self._text = rest
                if line.startswith(b"{"):
                    return cast("dict[str, Any]", json.loads(line))
                continue
            ready, _, _ = select.select([answers], [], [], max(0.0, until - time.monotonic()))
            more = os.read(answers, 1 << 16) if ready else b""
            if not more:
                return None
            self._text += more


def _result(setting: dict[str, Any]) -> dict[str, Any]:
    return {name: setting[name] for name in ("at_end", "held", "restored", "why")}
