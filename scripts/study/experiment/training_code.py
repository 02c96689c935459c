"""The version of the code that trains a run: this project's, or a user's program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from study.core import code_version
from study.workloads import command
from study.workloads.command import code_files, content


class FileState(NamedTuple):
    """A file as the file system has it. content: changes with its content. attributes: others that ``ctime_ns`` notes.

    The time when it was written is not enough: ``cp -p`` and ``rsync -t`` bring it back.
    """

    content: tuple[int, ...]
    attributes: tuple[int, ...]
    ctime_ns: tuple[int, ...]


State = Mapping[Path, FileState | None]  # None for a file that is gone


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
    return next((path for path, state in before.items() if _has_changed(state, _read_file_state(path))), None)


def _has_changed(before: FileState | None, after: FileState | None) -> bool:
    """Whether a file's content was changed, also if that was undone; another mode, owner or hard link is no change."""
    if before is None or after is None:
        return before is not after
    is_rewritten = before.ctime_ns != after.ctime_ns and before.attributes == after.attributes
    return before.content != after.content or is_rewritten


def _read_file_state(path: Path) -> FileState | None:
    try:
        status, link = path.stat(), path.lstat()
    except OSError:
        return None
    return FileState(
        (link.st_ino, status.st_ino, status.st_size, status.st_mtime_ns),
        (status.st_mode, status.st_uid, status.st_gid, status.st_nlink),
        (link.st_ctime_ns, status.st_ctime_ns),
    )
