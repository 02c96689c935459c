"""Run a command on another host through ssh, under the guard there; takes the place of ssh for launchers.

    python -I -S remote.py HOST COMMAND ...

The environment and the command go through ssh's standard input, which nobody else can read; command lines show neither.
The pipe also tells the guard on the host that this process lives. It imports only the standard library, since one
process per rank is started.

If the two lose each other (a link, an sshd or a host fails or freezes), each ends its side by itself: this process
after `compute_patience_s`, with a line that names the host, and the guard after `compute_silence_s`.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, cast

# The longest silence, in seconds, after which a guard ends its host's ranks. It is longer than an outage that a run may
# survive: Gloo waits 30 s for another rank. A stall limit below two minutes makes it shorter, as it must be within it.
SILENCE_S = 30.0
LEAST_SILENCE_S = 8.0
BEATS = 6  # in that time
GUARD = str(Path(__file__).with_name("guard.py"))
# BatchMode: fail where ssh would ask. ControlPath: a connection of its own. One that is shared (ControlMaster) is kept
# alive by another ssh, which may not notice that the host is lost. All else is left to the user's ~/.ssh/config.
SSH = ("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlPath=none")
SSH_LOST = 255  # ssh's exit code if it does not reach the host, or not any more
LOST = "error: lost contact with"  # begin of the line that names the host
# The variable, JSON: names of the variables that go along, prefixes of those that are cleared on the host, silence_s.
SENT = "STUDY_SENT_VARIABLES"


def compute_silence_s(stall_limit_s: float) -> float:
    """The longest time without a byte from the launching host, after which a guard ends its host's ranks."""
    return min(SILENCE_S, max(LEAST_SILENCE_S, stall_limit_s / 4))


def compute_patience_s(silence: float) -> float:
    """The longest time without an answer from a host, after which the launching host counts it as lost.

    It is shorter than the guard's, and than Gloo's: then the host is told that was lost, not a rank that waited for it.
    """
    return 0.6 * silence


def read_sent() -> dict[str, Any]:
    """The content of the variable `SENT`, or what holds without it."""
    return {"names": [], "without": [], "silence_s": SILENCE_S, **json.loads(os.environ.get(SENT, "{}"))}


def main() -> None:
    """Start the command, keep the pipe alive until it ends; exits with its exit code."""
    host, *words = sys.argv[1:]
    silence = read_sent()["silence_s"]
    over: subprocess.Popen[bytes] | None = None
    is_told = threading.Event()

    def end(*_: Any) -> None:
        is_told.set()
        if over is not None:
            over.terminate()  # then the guard loses its pipe, and ends the command

    signal.signal(signal.SIGTERM, end)  # before ssh starts: a signal that comes meanwhile ends it too
    command = shlex.join([sys.executable, "-I", "-S", GUARD, "--remote"])
    over = subprocess.Popen([*SSH, *_make_alive_options(silence), host, command], stdin=subprocess.PIPE)
    if is_told.is_set():
        over.terminate()
    with contextlib.suppress(BrokenPipeError):  # ssh has ended; its exit code and its message say why
        _send(over, json.dumps(_make_order(words)).encode() + b"\n")
        while _is_running(over, silence / BEATS):
            _send(over, b".")
    code = over.wait()
    if code == SSH_LOST and not is_told.is_set():
        print(f"{LOST} {host}: its link or its sshd failed, or one of both hosts froze or went down", file=sys.stderr)
    sys.exit(_as_exit_code(code))


def _make_alive_options(silence: float) -> list[str]:
    """Options with which ssh ends after `compute_patience_s` without an answer.

    It asks more often than bytes are sent: old versions begin to wait anew with each byte.
    """
    interval = max(1, int(silence / BEATS / 1.5))
    unanswered = max(1, int(compute_patience_s(silence) / interval) - 1)
    return ["-o", f"ServerAliveInterval={interval}", "-o", f"ServerAliveCountMax={unanswered}"]


def _make_order(words: list[str]) -> dict[str, Any]:
    """The guard's order; see `study.machines.guard`. words: a command for the host's shell, as ssh takes it."""
    settings = read_sent()
    return {
        "line": ["/bin/sh", "-c", " ".join(words)],
        "folder": str(Path.cwd()),
        "variables": {name: os.environ[name] for name in settings["names"] if name in os.environ},
        "without": settings["without"],
        "silence_s": settings["silence_s"],
    }


def _send(process: subprocess.Popen[bytes], content: bytes) -> None:
    to = cast(IO[bytes], process.stdin)
    to.write(content)
    to.flush()


def _is_running(process: subprocess.Popen[bytes], beat_s: float) -> bool:
    """Wait until the next byte is due; False as soon as the process has ended."""
    try:
        ended = os.pidfd_open(process.pid)  # no polling beside a timed run
    except (OSError, AttributeError):  # Linux before 5.3, such as that of RHEL 8, or a sandbox without the call
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(beat_s)
        return process.returncode is None
    try:
        return not select.select([ended], [], [], beat_s)[0]
    finally:
        os.close(ended)


def _as_exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
