"""The registry of exports: functions that write a run or a whole study in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from study.core import files, paths
from study.core.csv_files import read_rows
from study.core.errors import StudyError
from study.core.registry import Registry

RECORD_TABLES = ("runs.csv", "loading.csv", "attempts.csv")  # in a study's folder, which name records


@dataclass(frozen=True)
class Written:
    """The result of exporting a run.

    size: in words, such as ``37 events``. absent: {part: why it is not in it}.
    """

    size: str
    absent: Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """The results of a study. of_machine: the folder ``results/<machine>``."""

    study: str
    machine_folder: Path

    @property
    def machine(self) -> str:
        """The machine's name."""
        return paths.find_machine_name(self.machine_folder)

    @property
    def folder(self) -> Path:
        """The study's own results folder, with ``runs.csv``."""
        return Path(paths.locate_study(self.machine_folder, self.study))

    def list_records(self) -> list[Path]:
        """List the records of the runs, loads and further attempts that the study's tables name."""
        named = [row["record"] for name in RECORD_TABLES for row in read_records(self.folder / name)]
        return [self.machine_folder / name for name in dict.fromkeys(named)]

    def require_contained(self) -> None:
        """Raise `StudyError` if an export would read a link out of the machine's results, or a pipe.

        Also for a record whose path has ``..``: others would unpack a file of this name.
        """
        for folder in (self.folder, *sorted({record.parent for record in self.list_records()})):
            files.check_links_inside(folder, self.machine_folder)
        for record in self.list_records():
            below = record.is_relative_to(self.machine_folder) and record.relative_to(self.machine_folder)
            if not below or ".." in below.parts:
                raise StudyError(f"{self.folder}: a table names {record}, which is no path below {self.machine_folder}")


def read_records(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table of records; none without the file, or if it is empty."""
    return read_rows(path, ("record",)) if path.is_file() and path.read_bytes().strip() else []


RunWriter = Callable[[Path, Path], Written]
StudyWriter = Callable[[Results, Path], str]


@dataclass(frozen=True)
class RunExport:
    """An export of each run.

    Args:
        title: what it is, and for which tool.
        file: the name of what it writes of a run.
        write: from a run's directory to that file. Raises `StudyError` for a run that it cannot be made of.
    """

    title: str
    file: str
    write: RunWriter


@dataclass(frozen=True)
class StudyExport:
    """An export of a study as a whole.

    Args:
        title: what it is, and for which tool.
        file: the name of what it writes, in which ``{study}`` stands for the study's.
        is_folder: whether that is a folder, in which others may have written too.
        write: from the results to that file or folder; returns what to tell of it.
    """

    title: str
    file: str
    is_folder: bool
    write: StudyWriter

    def name(self, study: str) -> str:
        """Return the name of the file or folder that it writes of a study."""
        return self.file.format(study=study)


EXPORTS: Registry[RunExport | StudyExport] = Registry("export")


def register_run_export(name: str, title: str, file: str) -> Callable[[RunWriter], RunWriter]:
    """Register the decorated function as the export ``name`` of each run."""

    def register(write: RunWriter) -> RunWriter:
        def write_own(run_folder: Path, path: Path) -> Written:
            files.check_links_inside(run_folder, run_folder)
            return write(run_folder, path)

        EXPORTS.add(name, RunExport(title, file, write_own))
        return write

    return register


def register_study_export(
    name: str, title: str, file: str, is_folder: bool = False
) -> Callable[[StudyWriter], StudyWriter]:
    """Register the decorated function as the export ``name`` of a study."""

    def register(write: StudyWriter) -> StudyWriter:
        def write_own(results: Results, path: Path) -> str:
            results.require_contained()
            return write(results, path)

        EXPORTS.add(name, StudyExport(title, file, is_folder, write_own))
        return write

    return register
