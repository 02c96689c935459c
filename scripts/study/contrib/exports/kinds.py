"""The registry of exports: what each writes, of a run or of a whole study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from study.core import files, paths
from study.core.csv_files import read_rows
from study.core.errors import StudyError
from study.core.registry import Registry

TABLES = ("runs.csv", "loading.csv", "attempts.csv")  # in a study's folder, which name records


@dataclass(frozen=True)
class Written:
    """What was written of a run.

    size: in words, such as ``37 events``. absent: {part: why it is not in it}.
    """

    size: str
    absent: Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """The results of a study. of_machine: the folder ``results/<machine>``."""

    study: str
    of_machine: Path

    @property
    def machine(self) -> str:
        """The machine's name."""
        return paths.machine_of(self.of_machine)

    @property
    def folder(self) -> Path:
        """The study's own, with ``runs.csv``."""
        return Path(paths.study_folder(self.of_machine, self.study))

    def records(self) -> list[Path]:
        """The records of the runs, loads and further attempts that the study's tables name."""
        named = [row["record"] for name in TABLES for row in read_records(self.folder / name)]
        return [self.of_machine / name for name in dict.fromkeys(named)]

    def check(self) -> None:
        """Raise `StudyError` for a link out of the machine's results, or a pipe, among what an export reads.

        And for a record whose path has ``..``: it would be the name of a file that others unpack.
        """
        for folder in (self.folder, *sorted({record.parent for record in self.records()})):
            files.check_contained(folder, self.of_machine)
        for record in self.records():
            below = record.is_relative_to(self.of_machine) and record.relative_to(self.of_machine)
            if not below or ".." in below.parts:
                raise StudyError(f"{self.folder}: a table names {record}, which is no path below {self.of_machine}")


def read_records(path: Path) -> list[dict[str, str]]:
    """The rows of a table of records; none without the file, or if it is empty."""
    return read_rows(path, ("record",)) if path.is_file() and path.read_bytes().strip() else []


OfRunWriter = Callable[[Path, Path], Written]
OfStudyWriter = Callable[[Results, Path], str]


@dataclass(frozen=True)
class OfRun:
    """An export of each run.

    Args:
        title: what it is, and for which tool.
        file: the name of what it writes of a run.
        write: from a run's directory to that file. Raises `StudyError` for a run that it cannot be made of.
    """

    title: str
    file: str
    write: OfRunWriter


@dataclass(frozen=True)
class OfStudy:
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
    write: OfStudyWriter

    def name(self, study: str) -> str:
        """The name of what it writes of a study."""
        return self.file.format(study=study)


EXPORTS: Registry[OfRun | OfStudy] = Registry("export")


def of_run(name: str, title: str, file: str) -> Callable[[OfRunWriter], OfRunWriter]:
    """Register the decorated function as the export ``name`` of each run."""

    def register(write: OfRunWriter) -> OfRunWriter:
        def write_own(folder: Path, path: Path) -> Written:
            files.check_contained(folder, folder)
            return write(folder, path)

        EXPORTS.add(name, OfRun(title, file, write_own))
        return write

    return register


def of_study(name: str, title: str, file: str, is_folder: bool = False) -> Callable[[OfStudyWriter], OfStudyWriter]:
    """Register the decorated function as the export ``name`` of a study."""

    def register(write: OfStudyWriter) -> OfStudyWriter:
        def write_own(results: Results, path: Path) -> str:
            results.check()
            return write(results, path)

        EXPORTS.add(name, OfStudy(title, file, is_folder, write_own))
        return write

    return register
