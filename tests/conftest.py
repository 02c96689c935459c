"""Options for parts of the tests and for their time; a test that is marked ``timed`` has the machine to itself."""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import distribution
import parts
import psutil
import pytest

# pytest rewrites each file of tests, 10 CPU seconds a worker, and keeps that where bytecode may be written. Where the
# variable PYTHONDONTWRITEBYTECODE is set, the processes that tests start still write none.
sys.dont_write_bytecode = False

NOT_RUN = pytest.StashKey()  # node ids of tests for which no time was left
BEGUN = pytest.StashKey()
HELD = pytest.StashKey()  # bytes of memory of this worker after the last time that it gave memory back
LEAST_BYTES = 100e6  # that are worth giving back


def pytest_addoption(parser):
    parser.addoption("--part", metavar="PART", default="all", help="a number, today or all: see tests/parts.py")
    parser.addoption("--store-durations", action="store_true", help="write tests/durations.csv, which orders the files")
    parser.addoption("--minutes", type=float, help="begin no test later; tests that were not run are listed")


def pytest_configure(config):
    """The runs of each worker's tests have a lock of their own, so that they wait for no other runs."""
    folder = tempfile.TemporaryDirectory(prefix="study-locks-tests-")
    atexit.register(folder.cleanup)
    os.environ["STUDY_LOCKS"] = folder.name
    config.stash[NOT_RUN], config.stash[BEGUN] = [], time.monotonic()
    config.pluginmanager.register(TimeLimit())
    if config.getoption("--store-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(StoredDurations())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return distribution.TimedLast(config, log) if config.getoption("dist") == "loadfile" else None


def _part(config):
    try:
        return parts.chosen(config.getoption("--part"))
    except ValueError as error:
        raise pytest.UsageError(f"--part: {error}") from None


def pytest_report_header(config):
    part = _part(config)
    return f"part {part} of {parts.PARTS}, that of {parts.DAYS[part - 1]}" if part else None


def pytest_collection_modifyitems(config, items):
    # Before pytest leaves out the long ones, for the test of their parts.
    config.stash[parts.COLLECTED] = parts.long_by_file(items)
    # The longest files first, so that no worker is left with one at the end. It keeps the order within a file.
    seconds = parts.durations(parts.FILES)
    items.sort(key=lambda item: distribution.place(item, seconds))
    part = _part(config)
    if part is None:
        return
    divided = parts.divided(parts.durations())
    others = [item for item in items if parts.part_of(item.nodeid, divided) != part]
    items[:] = [item for item in items if parts.part_of(item.nodeid, divided) == part]
    config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session):
    """What was imported stays: no later collection of garbage goes over it, which takes a second each time."""
    gc.freeze()
    session.config.stash[HELD] = _held_bytes()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """After a file, give back what its models held: a worker grew to gigabytes, as Keras keeps each model's graph.

    Most files have no models, and it takes a second.
    """
    if nextitem is not None and nextitem.path == item.path:
        return
    keras, held = sys.modules.get("tf_keras"), item.config.stash[HELD]
    if keras and _held_bytes() > held + LEAST_BYTES:
        keras.backend.clear_session()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # of another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
        item.config.stash[HELD] = _held_bytes()


def _held_bytes():
    return psutil.Process().memory_info().rss


class StoredDurations:
    """The seconds of each file, for `parts.FILES`."""

    def __init__(self):
        self.seconds = {}

    def pytest_runtest_logreport(self, report):
        file = report.nodeid.partition("::")[0]
        self.seconds[file] = self.seconds.get(file, 0) + report.duration

    def pytest_sessionfinish(self):
        parts.store(self.seconds)


class TimeLimit:
    """Begins no test after ``--minutes``, and lists those that were not run: no skip, which could look like a pass."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        minutes, begun = item.config.getoption("--minutes"), item.config.stash[BEGUN]
        if minutes is None or time.monotonic() - begun < 60 * minutes:
            return None
        item.config.stash[NOT_RUN].append(item.nodeid)
        return True

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["not_run"] = session.config.stash[NOT_RUN]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        node.config.stash[NOT_RUN] += getattr(node, "workeroutput", {}).get("not_run", [])

    def pytest_terminal_summary(self, terminalreporter, config):
        if not_run := sorted(config.stash[NOT_RUN]):
            terminalreporter.section(f"{len(not_run)} tests were not run, as no time was left")
            for test in not_run:
                terminalreporter.line(test)


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
