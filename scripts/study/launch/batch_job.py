"""The command of a batch job, in a file that the job reads, and what is done in the job before the command starts.

A run's batch job starts the run's own command. A Snakemake in the job would read the rules and plan the job once more,
which takes seconds of its node's time, and longer where many nodes read the environment's files from one file system.
"""

import dataclasses
import os
import time
from collections.abc import Iterable
from pathlib import Path

from study.core.errors import StudyError
from study.core.files import read_json, write_json

SHELL = ("bash", "-c")
STRICT = "set -euo pipefail; "  # as in all of Snakemake's shell commands
POLL_S = 1.0


@dataclasses.dataclass(frozen=True)
class BatchJob:
    """A batch job's command and its files.

    Args:
        folder: in which the command starts, an absolute path; the other paths are relative to it.
        command: a shell command.
        inputs: files that must be there; those that another node wrote may be seen late.
        outputs: files that the command makes; one that is there stays, since another job may have made it.
        logs: files that the command may write; their folders are made.
    """

    folder: str
    command: str
    inputs: list[str]
    outputs: list[str]
    logs: list[str]

    def write(self, path: Path) -> None:
        """Write the job's file."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "BatchJob":
        """Read the job from a file that `write` has written; raises `StudyError` if it is not there."""
        return cls(**read_json(path))

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


def become_command(path: Path, latency_s: float) -> None:
    """Replace this process by the command in a job's file; raises `StudyError` as `wait_for_files`."""
    wait_for_files([path], latency_s)
    job = BatchJob.read(path)
    os.chdir(job.folder)
    job.prepare(latency_s)
    os.execvp(job.words[0], job.words)  # noqa: S606  signals to the job's process reach the command
