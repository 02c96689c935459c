"""The version of the code that trains a run: this project's, or a user's program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study.core import code_version
from study.workloads import command
from study.workloads.command import code_files, content

State = Mapping[
    Path, tuple[int, int, int] | None
]  # inode, size and time of each file's last change; None if it is gone


def digest_training_code(benchmarks: Sequence[str], framework: str, spec: Mapping[str, Any]) -> str:
    """Digest of the code that can change a run's numbers.

    Args:
        benchmarks: that it trains; several in an ensemble of different networks.
        framework: that trains them.
        spec: the benchmark's YAML, or what a run's definition has of it.
    """
    if command.is_command(spec):
        return code_version.digest_command_code(content.compute_code_digest(spec))
    return code_version.digest_training_code(*benchmarks, framework=framework)


def read_code_state(benchmarks: Sequence[str], framework: str, spec: Mapping[str, Any]) -> State:
    """State of each file of the code, by which also a change that was undone is seen.

    The arguments are those of `digest_training_code`.
    """
    if command.is_command(spec):
        paths = [*code_files.list_paths(spec), *code_version.list_command_files()]
    else:
        paths = code_version.list_training_files(*benchmarks, framework=framework)
    return {path: _read_file_state(path) for path in paths}


def find_changed_file(before: State) -> Path | None:
    """The first file of the code that is not as it was; None if all are. A file that was added is no change."""
    return next((path for path, state in before.items() if _read_file_state(path) != state), None)


def _read_file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns  # `cp -p` brings back the time when it was written
