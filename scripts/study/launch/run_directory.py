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
from study.core.files import find_target_name, write_aside
from study.core.paths import ATTEMPTS, OUTCOME, REPLACED, TIMED_OUT, is_same
from study.ensembles import members_table
from study.instruments import disturbance, phases, queue_usage
from study.instruments.power import telemetry
from study.launch import processes
from study.launch.variables import TIMELINE
from study.training import checkpoints
from study.training.program import PROGRAM

LOG = "train.log"
LOCK_S = 10.0  # longest wait for the guard of an earlier launch that was killed
RUNS = "runs"  # above the folders of all runs, see `study.core.paths.locate_run`
RUN_FILES = {"run.yaml", "provenance.json", "phases.jsonl", "ranks", "telemetry.csv", "sensors.json",
             "timeline.json.gz", "profile.pstats", "history.csv", "metrics.json", OUTCOME, TIMED_OUT,
             "communication.json", "activity.csv", checkpoints.FOLDER, "communication.log", "record.json", "record.log",
             LOG, disturbance.FILE, processes.FILE, members_table.FILE,
             queue_usage.FILE, PROGRAM}  # fmt: skip


@contextlib.contextmanager
def lock_folder(folder: Path, wait_s: float | None = None) -> Iterator[int]:
    """Lock a run's folder for one launch; yields the lock's file descriptor.

    Another Snakemake, or one that was killed, may have another launch there.

    The lock of a killed launch is held until its guard has killed its ranks, which takes a moment. Where the file
    system has no locks, the launch goes on without one, with a warning. wait_s: the longest wait, `LOCK_S` if None.
    """
    wait_s = LOCK_S if wait_s is None else wait_s
    descriptor = _open_folder(folder)
    began, is_told = time.monotonic(), False
    try:
        while (result := locks.try_lock(descriptor)) is locks.Lock.TAKEN or not _is_folder_at(descriptor, folder):
            if result is not locks.Lock.TAKEN:  # it was put aside meanwhile
                os.close(descriptor)
                descriptor = _open_folder(folder)
                continue
            waited_s = time.monotonic() - began
            if waited_s > wait_s:
                raise StudyError(
                    f"{folder}: an earlier launch of this run is still at work there; let it end or end it "
                    f"({_describe_launches(folder)}), then run again"
                )
            if waited_s > LOCK_S and not is_told:
                is_told = True
                print(
                    f"waiting for the end of an earlier launch of this run ({_describe_launches(folder)}), at most "
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


def _open_folder(folder: Path) -> int:
    """Make a folder if need be, and open it; returns its file descriptor."""
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder, os.O_RDONLY)


def _is_folder_at(descriptor: int, folder: Path) -> bool:
    """True if an open folder still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False


def _describe_launches(folder: Path) -> str:
    """The launches in a folder, for messages."""
    return f"process {', '.join(map(str, _find_launch_processes(folder))) or 'on another host, or of another user'}"


def _find_launch_processes(folder: Path) -> list[int]:
    """Process ids of launches and ranks whose command lines name the folder."""
    process_ids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        is_ours = any(word.endswith((b"train.py", b"run_command.py", b"launch_training.py")) for word in words)
        if is_ours and any(is_same(word.decode("utf-8", "replace"), folder) for word in words if b"/" in word):
            process_ids.append(int(path.parent.name))
    return sorted(process_ids)


def move_to_replaced(folder: Path) -> None:
    """Move a finished run with its attempts to ``results/<machine>/replaced/<number>``, to make place for a new run.

    That folder has the layout of ``results/<machine>``. The run's folder is locked. Raises `StudyError` for a folder
    that is not in a machine's results.
    """
    if len(folder.absolute().parents) < 5 or folder.absolute().parents[2].name != RUNS:
        raise StudyError(f"{folder}: holds the outcome of another run, which is never overwritten; give a new folder")
    results, name = _split_at_results(folder)
    numbered = (results / REPLACED / str(number) for number in itertools.count(1))
    _move_with_attempts(name, results, next(each for each in numbered if not (each / name).exists()))


def list_replaced(folder: Path) -> list[Path]:
    """The folders of a run's replaced outcomes (`move_to_replaced`), the last one first."""
    results, name = _split_at_results(folder)
    folders = (results / REPLACED).glob(f"[1-9]*/{name}")
    return sorted(folders, key=lambda path: -int(path.relative_to(results).parts[1]))


def restore_replaced(folder: Path, replaced: Path) -> None:
    """Bring a replaced outcome back to its run's folder, with its attempts, in exchange for the one there.

    replaced: one of `list_replaced`. Raises `StudyError` if a launch is at work in the folder.
    """
    results, name = _split_at_results(folder)
    with lock_folder(folder):
        move_to_replaced(folder)
        _move_with_attempts(name, _split_at_results(replaced)[0], results)


def _split_at_results(folder: Path) -> tuple[Path, Path]:
    """(``results/<machine>`` or one of its ``replaced/<number>``, the path below it) of a run's folder."""
    results = folder.absolute().parents[3]
    return results, folder.absolute().relative_to(results)


def _move_with_attempts(name: Path, source: Path, target: Path) -> None:
    """Move a run's folder and those of its earlier attempts from one tree of results to another."""
    attempts = sorted((source / ATTEMPTS).glob("[1-9]*"))
    for path in [*(Path(ATTEMPTS, each.name, name) for each in attempts), name]:
        if (source / path).exists():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).rename(target / path)


def remove_leftovers(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove the files of an attempt without an outcome, except ``keep``; raises `StudyError` for other files."""
    unknown_names = sorted(
        path.name for path in folder.iterdir() if not {path.name, find_target_name(path)} & RUN_FILES
    )
    if unknown_names:
        raise StudyError(f"{folder}: is not a run's directory, it holds {unknown_names[0]}; give a new or empty one")
    for path in folder.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def merge_rank_files(folder: Path, hosts: Iterable[Mapping[str, Any]] = ()) -> None:
    """Merge the files of the ranks and of the hosts' samplers into the run's own files.

    hosts: of a run on several hosts, from its provenance; all wall times become those of the launching host's clock.
    """
    ranks = folder / "ranks"
    offsets = phases.collect_clock_offsets_ns(hosts)
    phases.merge_logs(sorted(ranks.glob("phases-*.jsonl")), folder / "phases.jsonl", offsets)
    telemetry.merge_telemetry(ranks, folder / "telemetry.csv", folder / "sensors.json", offsets)
    queue_usage.merge(ranks, folder / queue_usage.FILE, offsets)
    disturbance.merge_background_files(ranks, folder / disturbance.FILE, offsets)
    _compress_timeline(folder)
    shutil.rmtree(ranks, ignore_errors=True)


def _compress_timeline(folder: Path) -> None:
    """Compress the timeline, by far the largest file, into the run's folder; viewers open it compressed."""
    written = folder / TIMELINE
    if written.exists() and written.stat().st_size:
        with (
            open(written, "rb") as source,
            write_aside(folder / "timeline.json.gz") as aside,
            gzip.open(aside, "wb", compresslevel=4) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
