"""Run a command on another host through ssh, under the guard there; takes the place of ssh for launchers.

    python -I -S remote.py HOST COMMAND ...

The environment and the command go through ssh's standard input, which nobody else can read; command lines show neither.
The pipe also tells the guard on the host that this process lives. It imports only the standard library, since one
process per rank is started.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, cast

BEAT_S = 5.0
GUARD = str(Path(__file__).with_name("guard.py"))
# BatchMode: fail where ssh would ask. Everything else is left to the user's ~/.ssh/config.
SSH = ("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
# The variable, JSON: names of the variables that go along, and prefixes of those that are cleared on the host.
SENT = "STUDY_SENT_VARIABLES"


def main() -> None:
    """Start the command, keep the pipe alive until it ends; exits with its exit code."""
    host, *words = sys.argv[1:]
    over = subprocess.Popen([*SSH, host, shlex.join([sys.executable, "-I", "-S", GUARD, "--remote"])],
                            stdin=subprocess.PIPE)  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: over.terminate())  # then the guard loses its pipe, and ends the command
    with contextlib.suppress(BrokenPipeError):  # ssh has ended; its exit code and its message say why
        _send(over, json.dumps(_order(words)).encode() + b"\n")
        while _is_running(over):
            _send(over, b".")
    sys.exit(_as_exit_code(over.wait()))


def _order(words: list[str]) -> dict[str, Any]:
    """The guard's order; see `study.machines.guard`. words: a command for the host's shell, as ssh takes it."""
    sent = json.loads(os.environ.get(SENT, '{"names": [], "without": []}'))
    return {
        "line": ["/bin/sh", "-c", " ".join(words)],
        "folder": str(Path.cwd()),
        "variables": {name: os.environ[name] for name in sent["names"] if name in os.environ},
        "without": sent["without"],
    }


def _send(process: subprocess.Popen[bytes], content: bytes) -> None:
    to = cast(IO[bytes], process.stdin)
    to.write(content)
    to.flush()


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the next byte is due; False as soon as the process has ended."""
    ended = os.pidfd_open(process.pid)  # no polling beside a timed run
    try:
        return not select.select([ended], [], [], BEAT_S)[0]
    finally:
        os.close(ended)


def _as_exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
