"""Faults that strike a study while it runs: each is a function of a `battlefield.Field` and of what it hits."""

import contextlib
import functools
import os
import resource
import signal

import psutil
from battlefield import ARTEFACTS, FOLDERS, PROCESSES
from registry import strike

STUDY_FILE, BENCHMARK_FILE = "config/studies/chaos.yaml", "config/benchmarks/nt3.yaml"
AT_REST = {"a file is cut off", "a byte is flipped"}  # what may also happen when nothing runs
EDITS = {
    "the study's epochs": (STUDY_FILE, "epochs: 1", "epochs: 2"),
    "the study's ranks": (STUDY_FILE, "gpus: 2", "gpus: 1"),
    "the study's dataset": (STUDY_FILE, "train_samples: 60", "train_samples: 80"),
    "the study's tables": (STUDY_FILE, "[scaling]", "[scaling, time_to_quality]"),
    "the study's runs": (
        STUDY_FILE,
        "loader: npy}",
        "loader: npy}\n  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 1}",
    ),
    "half of the study": (STUDY_FILE, "loader: npy}", "loader: np"),
    "the benchmark's learning rate": (BENCHMARK_FILE, "learning_rate: 0.001", "learning_rate: 0.004"),
}


def _send(field, process, share, number):
    process.send_signal(number)
    return f"{signal.Signals(number).name} to {process.pid}", None


for _number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV):
    strike(_number.name, PROCESSES)(functools.partial(_send, number=_number))


@strike("SIGSTOP, then SIGCONT", PROCESSES)
def stop(field, process, share):
    process.send_signal(signal.SIGSTOP)

    def go_on():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)

    return f"SIGSTOP to {process.pid}", go_on


@strike("a file is cut off", ARTEFACTS)
def cut_off(field, path, share):
    size = path.stat().st_size
    os.truncate(path, int(size * share))
    field.struck.add(path)
    return f"{path.name} cut off at {int(size * share)} of {size} bytes", None


@strike("a byte is flipped", ARTEFACTS)
def flip(field, path, share):
    with open(path, "r+b") as handle:
        content = handle.read()
        place = int(len(content) * share)
        bit = 1 << int(share * 8191) % 7
        handle.seek(place)
        handle.write(bytes([content[place] ^ bit if content else 65]))
    field.struck.add(path)
    return f"{path.name}: bit {bit} of byte {place} flipped", None


@strike("no permission", [*ARTEFACTS, *FOLDERS])
def forbid(field, path, share):
    before = path.stat().st_mode
    mode = (before & 0o555) if share < 0.5 else 0
    path.chmod(mode)

    def allow():
        with contextlib.suppress(FileNotFoundError):
            path.chmod(before)

    return f"{path.name}: mode {mode & 0o777:o}", allow


@strike("the disk is full", ["the disk"])
def fill(field, _, share):
    if not os.path.ismount(field.disk):
        return _forbid_long_files(field)
    filler = field.disk / "filler"
    with open(filler, "wb", buffering=0) as handle, contextlib.suppress(OSError):
        size = 1 << 20
        while size:
            try:
                handle.write(b"x" * size)
            except OSError:
                size //= 2
    return "the disk is full", lambda: filler.unlink(missing_ok=True)


def _forbid_long_files(field):
    """Where no small disk can be mounted: files of all processes may not grow."""
    touched = field.processes()
    for process in touched:
        with contextlib.suppress(psutil.Error):
            process.rlimit(resource.RLIMIT_FSIZE, (0, process.rlimit(resource.RLIMIT_FSIZE)[1]))

    def lift():
        for process in field.processes():
            with contextlib.suppress(psutil.Error):
                hard = process.rlimit(resource.RLIMIT_FSIZE)[1]
                process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return f"no file of {len(touched)} processes may grow", lift


@strike("out of memory", ["the memory"])
def starve(field, _, share):
    more = int(share * 64) << 20
    if field.memory:
        field.memory.limit(more)
        return f"{more >> 20} MB more for all processes together", field.memory.lift
    largest = max(field.processes(), key=lambda each: each.memory_info().rss)
    limit = largest.memory_info().vms + more
    largest.rlimit(resource.RLIMIT_AS, (limit, limit))
    return f"{more >> 20} MB more for {largest.pid}", None


def _edit(field, what, share):
    name, old, new = EDITS[what]
    path = field.root / name
    _replace(path, old, new)
    return f"{path.name}: {new.splitlines()[-1].strip()}", lambda: _replace(path, new, old)


def _replace(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))  # of several edits each is undone by itself


strike("the configuration is edited", EDITS)(_edit)
