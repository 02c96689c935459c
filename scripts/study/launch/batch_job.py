"""The commands of a batch job, in a file that the job reads, and what is done in the job before a command starts.

A run's batch job starts the run's own command. A Snakemake in the job would read the rules and plan the job once more,
which takes seconds of its node's time, and longer where many nodes read the environment's files from one file system.
A job of several runs has lanes: the commands of a lane run one after the other, whatever became of the one before. Each
reads its files from storage, as it would alone on its nodes.
"""

import concurrent.futures
import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from study.core import signals
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.data import page_cache
from study.machines import queues

SHELL = ("bash", "-c")
STRICT = "set -euo pipefail; "  # as in all of Snakemake's shell commands
POLL_S = 1.0


@dataclasses.dataclass(frozen=True)
class BatchJob:
    """A command of a batch job and its files.

    Args:
        folder: in which the command starts, an absolute path, the same for all of a job; the other paths are relative
            to it.
        command: a shell command.
        inputs: files that must be there; those that another node wrote may be seen late.
        outputs: files that the command makes; one that is there stays, since another job may have made it.
        logs: files that the command may write; their folders are made.
        limit_s: how long it may take (s); without so much left of the job it does not start after another one.
    """

    folder: str
    command: str
    inputs: list[str]
    outputs: list[str]
    logs: list[str]
    limit_s: float = 0.0

    def prepare(self, latency_s: float) -> None:
        """Wait for the inputs and make the folders of outputs and logs; raises `StudyError` as `wait_for_files`."""
        wait_for_files(self.inputs, latency_s)
        for name in (*self.outputs, *self.logs):
            Path(name).parent.mkdir(parents=True, exist_ok=True)

    @property
    def words(self) -> list[str]:
        """The command as words of a command line."""
        return [*SHELL, STRICT + self.command]


def wait_for_files(files: Iterable[str | Path], latency_s: float) -> None:
    """Wait for files that another node may have written; raises `StudyError` for those missing after ``latency_s``."""
    until = time.monotonic() + latency_s
    while (missing := [str(file) for file in files if not Path(file).exists()]) and time.monotonic() < until:
        time.sleep(POLL_S)
    if missing:
        raise StudyError(
            f"{', '.join(missing)}: not there after {latency_s:g} s; if the file system shows files of other nodes "
            "later than this, set latency-wait in the profile"
        )


def write_lanes(lanes: Iterable[Iterable[BatchJob]], path: Path) -> None:
    """Write a job's file."""
    write_json(path, [[dataclasses.asdict(each) for each in lane] for lane in lanes])


def read_lanes(path: Path) -> list[list[BatchJob]]:
    """Read what `write_lanes` has written; raises `StudyError` if it is not there."""
    return [[BatchJob(**each) for each in lane] for lane in read_json(path)]


def run_lanes(path: Path, latency_s: float) -> int:
    """Run the commands in a job's file; returns 0 if all ended well. A single one replaces this process.

    Raises:
        StudyError: as `wait_for_files`, for the file, and for the inputs of a single command.
    """
    wait_for_files([path], latency_s)
    lanes = read_lanes(path)
    for job in itertools.islice(itertools.chain.from_iterable(lanes), 1):  # all have the same folder
        os.chdir(job.folder)
    if [len(lane) for lane in lanes] == [1]:
        (job,) = lanes[0]
        job.prepare(latency_s)
        os.execvp(job.words[0], job.words)  # noqa: S606  signals to the job's process reach the command
    return _Runner(latency_s).run(lanes)


class _Runner:
    """Runs lanes of commands at the same time; hands signals on to the commands at work, and then starts no other."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._at_work: set[subprocess.Popen[bytes]] = set()
        self._signals: list[int] = []

    def run(self, lanes: Sequence[Sequence[BatchJob]]) -> int:
        """Run all lanes; returns 0, or 128 plus the number of the signal that ended them, or 1."""
        with (
            signals.replace_handlers(self._hand_on),
            concurrent.futures.ThreadPoolExecutor(max(1, len(lanes))) as threads,
        ):
            ended_well = list(threads.map(self._run_lane, lanes))
        return 0 if all(ended_well) else 128 + self._signals[0] if self._signals else 1

    def _hand_on(self, number: int, _: Any) -> None:
        self._signals.append(number)
        for process in list(self._at_work):
            process.send_signal(number)

    def _run_lane(self, lane: Sequence[BatchJob]) -> bool:
        """Run the commands of a lane; False if one of them failed or was not started."""
        ended_well = [self._run_command(job, is_first=place == 0) for place, job in enumerate(lane)]
        return all(ended_well)

    def _run_command(self, job: BatchJob, is_first: bool) -> bool:
        try:
            if not is_first:
                _require_time(job)
            job.prepare(self._latency_s)
        except StudyError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return False
        if self._signals:
            return False
        process = subprocess.Popen(job.words, env={**os.environ, page_cache.RELEASE: "1"})
        self._at_work.add(process)
        for number in self._signals:  # that came meanwhile
            process.send_signal(number)
        code = process.wait()
        self._at_work.discard(process)
        return code == 0


def _require_time(job: BatchJob) -> None:
    """Raise `StudyError` if the batch job has less time left than a command may take: it would be cut short."""
    left_s = queues.compute_seconds_left(queues.read_job(os.environ), time.time())
    if left_s is not None and left_s < job.limit_s:
        raise StudyError(
            f"not started: this job has {left_s:.0f} s left, and it may take {job.limit_s:.0f} s; another job makes "
            f"it: {' '.join(job.outputs)}"
        )
