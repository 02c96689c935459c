"""Files in the folder of a program: what a run wrote there, and what earlier runs had left there that it used.

A program that writes checkpoints into its folder may go on from those of an earlier run, and then trains less. The
names, sizes and times of all files are compared before and after a run; `LEDGER` in the folder notes which of them runs
have written, also runs whose results are gone. No file is read or copied.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.experiment.definition import RunDefinition
from study.training.program import PROGRAM
from study.workloads.command.code_files import HIDDEN, list_paths, matches_any
from study.workloads.command.placeholders import RUN_FOLDER, WRITTEN

LEDGER = "files.json"  # in `HIDDEN`, as what was moved aside
ASIDE = "aside"
NOT_LOOKED_AT = frozenset({".git", "__pycache__", ".snakemake", ".cluster", HIDDEN})  # names of folders
MOST_FILES = 100_000
MOST_NAMED = 1000  # of the files that a run wrote, in metrics.json


class State(NamedTuple):
    """What of a file tells that it was changed. read_ns: when it was last read."""

    bytes: int
    changed_ns: int
    inode: int
    read_ns: int


class ProgramFiles:
    """The files of a run's program, from before the run to its end.

    Args:
        run: the run's definition. What its benchmark's ``fresh`` names is moved aside.
        folder: the run's directory.

    Raises:
        StudyError: a file of ``fresh`` cannot be moved.
    """

    def __init__(self, run: RunDefinition, folder: Path) -> None:
        self._spec, self._run_folder = run.benchmark, folder.absolute()
        self._folder = Path(run.benchmark["folder"])
        self._ledger_file = self._folder / HIDDEN / LEDGER
        self._open_before = _list_open_files(self._folder)  # such as the log of the command that started this
        fresh = self._spec.get("fresh", ())
        _move_aside(self._folder, {path for each in fresh for path in self._folder.glob(each)})
        self._before, self._is_whole = self._list_files()
        ledger = self._read_ledger()
        written = {path: tuple(state) for path, state in ledger["written"].items()}
        # Of a run that was killed: all that was changed since its start, but for the code, which is the user's.
        code = {os.path.relpath(path, self._folder) for path in list_paths(self._spec)}
        begun_ns = min(ledger["at_work"].values(), default=None)
        if begun_ns is not None:
            written |= {path: state[:2] for path, state in self._before.items()
                        if state.changed_ns >= begun_ns and path not in code}  # fmt: skip
        self._earlier = {path: state for path, state in self._before.items() if written.get(path) == state[:2]}
        patterns = [each.removeprefix(WRITTEN) for each in fresh if each.startswith(WRITTEN)]
        moved = {path: state for path, state in self._earlier.items()
                 if path in ledger["written"] and path not in code and matches_any(path, patterns)}  # fmt: skip
        _move_aside(self._folder, {self._folder / path for path in moved})
        for path in moved:
            del self._before[path], self._earlier[path]
        self._notes_reads = not self._earlier or _notes_reads(self._folder)
        # Many file systems note only the first read after a change. Of code, nothing may be changed while runs use it.
        for path in self._earlier.keys() - code:
            state = self._earlier[path]
            with contextlib.suppress(OSError):
                os.utime(self._folder / path, ns=(state.changed_ns - 1, state.changed_ns))
                self._earlier[path] = state._replace(read_ns=state.changed_ns - 1)
        self._begun_ns = time.time_ns()
        self._save_ledger(self._earlier | moved, {str(self._run_folder): self._begun_ns})

    def finish(self) -> dict[str, Any]:
        """End the run in the ledger; returns the entry ``files`` of ``metrics.json``.

        That is: files that the run wrote, and those of earlier runs that it used.
        """
        after, is_whole = self._list_files()
        is_whole &= self._is_whole
        written = {path: state for path, state in after.items() if self._before.get(path, ())[:3] != state[:3]}
        used = [path for path, state in self._earlier.items() if self._was_used(state, after.get(path))]
        self._save_ledger({path: after[path] for path in (*self._earlier, *written) if path in after}, {})
        names = {path for path, state in written.items() if state.bytes} if is_whole else self._find_new_outputs()
        own = self._run_folder / PROGRAM
        for path, entry in _walk(str(own), f"{RUN_FOLDER}/", ()):
            names |= {path} if entry.is_file() and entry.stat().st_size else set()
        return {
            "written": sorted(names)[:MOST_NAMED],
            "used": sorted(used)[:MOST_NAMED] if is_whole else [],
            "notes_reads": self._notes_reads,
            "is_whole": is_whole,
        }

    def _find_new_outputs(self) -> set[str]:
        """The files of the benchmark's ``outputs`` in the program's folder that were changed since the run began."""
        patterns = [each for each in self._spec.get("outputs", ()) if not each.startswith(RUN_FOLDER)]
        paths = [path for each in patterns for path in self._folder.glob(each) if path.is_file()]
        states = {str(path.relative_to(self._folder)): path.stat() for path in paths}
        return {name for name, state in states.items() if state.st_size and state.st_mtime_ns >= self._begun_ns}

    def _was_used(self, before: State, after: State | None) -> bool:
        """Whether a file was read, changed or removed; True if a read of it is not noted."""
        is_noted = self._notes_reads and before.read_ns <= before.changed_ns
        return after is None or before[:3] != after[:3] or after.read_ns > before.read_ns or not is_noted

    def _list_files(self) -> tuple[dict[str, State], bool]:
        """({path below the folder: its state} of all files, whether there are no more than `MOST_FILES`)."""
        files: dict[str, State] = {}
        results = _find_first_folder(self._run_folder, self._folder)
        for path, entry in _walk(str(self._folder), "", {*NOT_LOOKED_AT, *results}):
            if path in self._open_before:
                continue
            with contextlib.suppress(OSError):  # gone meanwhile
                status = entry.stat(follow_symlinks=False)
                files[path] = State(status.st_size, status.st_mtime_ns, status.st_ino, status.st_atime_ns)
            if len(files) > MOST_FILES:
                return files, False
        return files, True

    def _read_ledger(self) -> dict[str, Any]:
        """The content of `LEDGER`: {written: {path: [bytes, time of change]}, at_work: {run's folder: its start}}."""
        with contextlib.suppress(OSError, StudyError):
            content = read_json(self._ledger_file)
            if isinstance(content, dict) and all(isinstance(content.get(key), dict) for key in ("written", "at_work")):
                return content
        return {"written": {}, "at_work": {}}

    def _save_ledger(self, files: Mapping[str, State], at_work: Mapping[str, int]) -> None:
        """Write `LEDGER`; not into a folder that cannot be written, where runs leave nothing."""
        with contextlib.suppress(OSError):
            _make_hidden_folder(self._folder)
            written = {path: [state.bytes, state.changed_ns] for path, state in files.items()}
            write_json(self._ledger_file, {"written": written, "at_work": at_work})


def _walk(folder: str, prefix: str, left_out: Iterable[str] = NOT_LOOKED_AT) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (path, entry) of all files below a folder; virtual environments are left out."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield f"{prefix}{entry.name}", entry
        elif entry.name not in left_out:
            yield from _walk(entry.path, f"{prefix}{entry.name}/")


def _list_open_files(folder: Path) -> set[str]:
    """The files below a folder that processes of this user have open; paths relative to it."""
    paths = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError, ValueError):
            paths.add(str(descriptor.readlink().relative_to(folder.resolve())))
    return paths


def _find_first_folder(path: Path, above: Path) -> list[str]:
    """The name of the folder directly in ``above`` in which a path is, such as ``results``; [] if it is elsewhere."""
    return list(path.relative_to(above).parts[:1]) if path.is_relative_to(above) else []


def _notes_reads(folder: Path) -> bool:
    """Whether the file system notes when a file is read."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".study_probe") as probe:
            probe.write(b"x")
            probe.flush()
            os.utime(probe.name, ns=(0, 0))
            Path(probe.name).read_bytes()
            return Path(probe.name).stat().st_atime_ns > 0
    except OSError:
        return False


def _move_aside(folder: Path, named: Iterable[Path]) -> None:
    """Move files and folders to a new folder in `HIDDEN`."""
    paths = sorted({path for path in named if path.name not in NOT_LOOKED_AT})
    if not paths:
        return
    try:
        _make_hidden_folder(folder)
        aside = folder / HIDDEN / ASIDE / time.strftime(f"%Y%m%dT%H%M%S-{time.time_ns() % 10**9:09d}")
        for path in paths:
            target = aside / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() or path.is_symlink():  # not moved already, with its folder
                path.rename(target)
    except OSError as error:
        raise StudyError(f"fresh: {error.filename} cannot be moved aside: {error.strerror}") from None


def _make_hidden_folder(folder: Path) -> None:
    """Make `HIDDEN`, which git ignores."""
    (folder / HIDDEN).mkdir(exist_ok=True)
    ignore = folder / HIDDEN / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
