"""Tests on several workers (pytest -n): one that is marked ``timed`` has the machine to itself."""

import atexit
import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

import pytest


def pytest_configure():
    """The runs of each worker's tests have a lock of their own, so that they wait for no other runs."""
    folder = tempfile.TemporaryDirectory(prefix="study-locks-tests-")
    atexit.register(folder.cleanup)
    os.environ["STUDY_LOCKS"] = folder.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Its fixtures too: what is timed may run in one of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    shared = Path(item.config.getoption("basetemp")).parent  # of all workers
    with _on_the_machine(shared, alone=item.get_closest_marker("timed") is not None):
        return (yield)


@contextlib.contextmanager
def _on_the_machine(folder, alone):
    """Hold the machine together with other tests, or alone. Whoever waits at the door is next: none overtakes."""
    with open(folder / "room", "a") as room:
        with open(folder / "door", "a") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
