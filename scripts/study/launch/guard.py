"""Run a command line, and kill it with all its descendants once the launching process is gone, for any reason.

    python -I -S guard.py LINE ...          standard input: a pipe whose other end the launching process holds

The launcher and its ranks must not outlive the launch, which cannot end them itself if it gets SIGKILL. The guard is
started in its own session; it imports only the standard library, and little of it.
"""

import os
import select
import signal
import sys


def main() -> None:
    """Start the command line, wait for its end or for the end of the pipe; exits with the command line's exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the command line, whose end the guard awaits
    child_ended, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it is written to the pipe
    signal.set_wakeup_fd(told)
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
        ready, _, _ = select.select([0, child_ended], [], [])
        if child_ended in ready:
            os.read(child_ended, 1024)
        if 0 in ready and not os.read(0, 1):
            os.killpg(0, signal.SIGKILL)


def _as_exit_code(status: int) -> int:
    """Exit code as in shells: 128 plus the signal's number for a process that was ended by a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
