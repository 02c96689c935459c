"""Handlers for the signals that end a program, and the end of what it has started."""

import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

TERMINATING = (signal.SIGTERM, signal.SIGHUP)  # SIGINT is Python's KeyboardInterrupt
ENDING = (*TERMINATING, signal.SIGINT)
SET_DEATH_SIGNAL = 1  # of prctl: the signal that a process gets when its parent ends


def handle(handler: Callable[[int, Any], Any], numbers: Iterable[int] = ENDING) -> dict[int, Any]:
    """The former handlers of those ``numbers`` that now have ``handler``: all that this process does not ignore.

    What is ignored at the start, by nohup or a shell's ``trap ''``, is meant for the whole command, and stays ignored.
    """
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


@contextlib.contextmanager
def handled(handler: Callable[[int, Any], Any], numbers: Iterable[int] = ENDING) -> Iterator[None]:
    """`handle` while the block runs."""
    before = handle(handler, numbers)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def leave(number: int, _: Any) -> None:
    """A handler that raises `SystemExit` with the exit code of shells, so that what was started is ended too."""
    sys.exit(128 + number)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends; for `subprocess.Popen`'s ``preexec_fn``."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, number, 0, 0, 0)
