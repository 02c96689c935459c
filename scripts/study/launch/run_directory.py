"""A run's directory: locked by one launch at a time, emptied before it, and filled with what the ranks wrote."""

import contextlib
import gzip
import itertools
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core import locks
from study.core.errors import StudyError
from study.core.files import meant_for, written_aside
from study.core.paths import ATTEMPTS, OUTCOME, REPLACED, TIMED_OUT, is_same
from study.ensembles import members_table
from study.experiment import autotuning
from study.instruments import calibration, disturbance, operations, phases, queue_usage
from study.instruments.power import telemetry
from study.launch import processes
from study.launch.variables import TIMELINE
from study.training import checkpoints
from study.training.program import PROGRAM

LOG = "train.log"
LOCK_S = 10.0  # longest wait for the guard of an earlier launch that was killed
RUNS = "runs"  # above the folders of all runs, see `study.core.paths.run_folder`
RUN_FILES = {"run.yaml", "provenance.json", "phases.jsonl", "ranks", "telemetry.csv", "sensors.json",
             "timeline.json.gz", "profile.pstats", "history.csv", "metrics.json", OUTCOME, TIMED_OUT,
             "communication.json", "activity.csv", checkpoints.FOLDER, "communication.log", "record.json", "record.log",
             LOG, disturbance.FILE, calibration.FILE, processes.FILE, autotuning.LOG, members_table.FILE,
             queue_usage.FILE, operations.FILE, PROGRAM}  # fmt: skip


@contextlib.contextmanager
def alone_in(folder: Path, wait_s: float | None = None) -> Iterator[int]:
    """Lock ``folder`` for one launch: another Snakemake, or one that was killed, may have another launch there.

    The lock of a killed launch is held until its guard has killed its ranks, which takes a moment. Where the file
    system has no locks, the launch goes on without one, with a warning. wait_s: the longest wait, `LOCK_S` if None.
    """
    wait_s = LOCK_S if wait_s is None else wait_s
    descriptor = _open(folder)
    began, is_told = time.monotonic(), False
    try:
        while (result := locks.attempt(descriptor)) is locks.Lock.TAKEN or not _is_at(descriptor, folder):
            if result is not locks.Lock.TAKEN:  # it was put aside meanwhile
                os.close(descriptor)
                descriptor = _open(folder)
                continue
            waited_s = time.monotonic() - began
            if waited_s > wait_s:
                raise StudyError(
                    f"{folder}: an earlier launch of this run is still at work there; let it end or end it "
                    f"({_name_launches(folder)}), then run again"
                )
            if waited_s > LOCK_S and not is_told:
                is_told = True
                print(
                    f"waiting for the end of an earlier launch of this run ({_name_launches(folder)}), at most "
                    f"{wait_s:.0f} s; if it ends with an outcome, that is this run's",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
            time.sleep(0.1)
        if result is locks.Lock.MISSING:
            print(
                f"warning: {folder}: its file system has no locks (flock), so nothing keeps a second Snakemake from "
                "starting this run meanwhile; start none, or move results_dir (config/config.yaml) elsewhere",
                file=sys.stderr,
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder, os.O_RDONLY)


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether an open folder still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False


def _name_launches(folder: Path) -> str:
    return f"process {', '.join(map(str, _at_work_in(folder))) or 'on another host, or of another user'}"


def _at_work_in(folder: Path) -> list[int]:
    """Process ids of launches and ranks whose command lines name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        is_ours = any(word.endswith((b"train.py", b"run_command.py", b"launch_training.py")) for word in words)
        if is_ours and any(is_same(word.decode("utf-8", "replace"), folder) for word in words if b"/" in word):
            found.append(int(path.parent.name))
    return sorted(found)


def replace(folder: Path) -> None:
    """Make place for a new run where a finished one is: that one is kept in ``results/<machine>/replaced/<number>``.

    This has the layout of ``results/<machine>``; the run's earlier attempts go with it. The folder is locked. Raises
    `StudyError` for a folder that is not in a machine's results.
    """
    place = folder.absolute()
    if len(place.parents) < 5 or place.parents[2].name != RUNS:
        raise StudyError(f"{folder}: holds the outcome of another run, which is never overwritten; give a new folder")
    results = place.parents[3]
    name = place.relative_to(results)
    kept = next(each for number in itertools.count(1) if not (each := results / REPLACED / str(number) / name).exists())
    for attempt in sorted((results / ATTEMPTS).glob("[1-9]*")):
        if (attempt / name).exists():
            _move(attempt / name, kept.parents[3] / ATTEMPTS / attempt.name / name)
    _move(place, kept)


def list_replaced(folder: Path) -> list[Path]:
    """The folders of a run's outcomes that were replaced (`replace`), the last one first."""
    results, name = folder.absolute().parents[3], folder.absolute().relative_to(folder.absolute().parents[3])
    return sorted(
        (results / REPLACED).glob(f"[1-9]*/{name}"), key=lambda kept: -int(kept.relative_to(results).parts[1])
    )


def take_back(folder: Path, kept: Path) -> None:
    """Bring a replaced outcome and its attempts back to the run's folder; an outcome that is there is replaced instead.

    kept: one of `list_replaced`. Raises `StudyError` if a launch is at work in the folder.
    """
    results, name = folder.absolute().parents[3], folder.absolute().relative_to(folder.absolute().parents[3])
    with alone_in(folder):
        if (folder / OUTCOME).exists():
            replace(folder)
        else:
            empty(folder)
        _move(kept, folder)
    for attempt in sorted((kept.parents[3] / ATTEMPTS).glob("[1-9]*")):
        if (attempt / name).exists():
            _move(attempt / name, results / ATTEMPTS / attempt.name / name)


def _move(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)


def empty(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove files of an attempt without an outcome, but ``keep``; refuses a folder with other files than a run's."""
    strange = sorted(path.name for path in folder.iterdir() if not {path.name, meant_for(path)} & RUN_FILES)
    if strange:
        raise StudyError(f"{folder}: is not a run's directory, it holds {strange[0]}; give a new or empty one")
    for path in folder.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def merge_ranks(folder: Path, hosts: Iterable[Mapping[str, Any]] = ()) -> None:
    """Merge the files of the ranks and of the hosts' samplers into the run's own files.

    hosts: of a run on several hosts, from its provenance; all wall times become those of the launching host's clock.
    """
    ranks = folder / "ranks"
    offsets = phases.collect_clock_offsets_ns(hosts)
    phases.merge_logs(sorted(ranks.glob("phases-*.jsonl")), folder / "phases.jsonl", offsets)
    telemetry.merge_telemetry(ranks, folder / "telemetry.csv", folder / "sensors.json", offsets)
    queue_usage.merge(ranks, folder / queue_usage.FILE, offsets)
    disturbance.merge_background_files(ranks, folder / disturbance.FILE, offsets)
    _keep_timeline(folder)
    shutil.rmtree(ranks, ignore_errors=True)


def _keep_timeline(folder: Path) -> None:
    """Compress the timeline, which is by far the largest file; Perfetto and chrome://tracing open it compressed."""
    written = folder / TIMELINE
    if written.exists() and written.stat().st_size:
        with (
            open(written, "rb") as source,
            written_aside(folder / "timeline.json.gz") as aside,
            gzip.open(aside, "wb", compresslevel=4) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
