"""Run a command line, and kill it with all it started once the process that asked for it is gone, however it went.

    python -I -S guard.py LINE ...          standard input: a pipe whose other end that process holds

The launcher and its ranks must not outlive the launch: a SIGKILL gives it no chance to end them itself. Started in a
session of its own; imports nothing but the standard library, and little of that.
"""

import os
import select
import signal
import sys

CHECK_S = 0.2


def main():
    """Start the command line, wait for its end or the pipe's; exits as the command line did."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the command line; this waits for it
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        try:
            os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  a list, no shell
        except OSError as error:
            print(f"error: {sys.argv[1]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            sys.exit(_as_exit_code(status))
        ready, _, _ = select.select([0], [], [], CHECK_S)
        if ready and not os.read(0, 1):
            os.killpg(0, signal.SIGKILL)


def _as_exit_code(status):
    """As shells have it: 128 and the signal's number for a process that a signal ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
