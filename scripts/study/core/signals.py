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


def set_handlers(handler: Callable[[int, Any], Any], numbers: Iterable[int] = ENDING) -> dict[int, Any]:
    """Handle each of the signals that this process does not ignore; returns the former handlers.

    What is ignored at the start, by nohup or a shell's ``trap ''``, is meant for the whole command, and stays ignored.
    """
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


@contextlib.contextmanager
def replace_handlers(handler: Callable[[int, Any], Any], numbers: Iterable[int] = ENDING) -> Iterator[None]:
    """Context in which signals have another handler, as by `set_handlers`."""
    before = set_handlers(handler, numbers)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def exit_on_signal(number: int, _: Any) -> None:
    """Signal handler that raises `SystemExit` with a shell's exit code, so that started processes are ended."""
    sys.exit(128 + number)


def die_with_parent(number: int) -> None:
    """Have the kernel signal this process when its parent ends; for `subprocess.Popen`'s ``preexec_fn``."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, number, 0, 0, 0)
