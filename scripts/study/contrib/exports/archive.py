"""The archive of a study: its report, tables, figures and findings, the records of its runs, and the workflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from study.core import archive, files, paths
from study.core.csv_files import read_rows
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.core.wording import format_count
from study.experiment.undeclared_results import list_undeclared_results

RECORD_TABLES = ("runs.csv", "loading.csv", "attempts.csv")  # in a study's folder, which name records
RUN_FILES = ("record.json", "run.yaml", "outcome.json", "provenance.json", "phases.jsonl", "history.csv", "members.csv")
SKIPPED_FOLDERS = ("logs", "exports")  # folders of a study's results


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


def export(results: Results, path: Path) -> str:
    """Write the archive: results, run records, the workflow, and their checksums; returns a line for the user."""
    results.require_contained()
    members = _collect_members(results)
    archive.write_archive(path, f"{results.machine}-{results.study}", members)
    return f"{path}: {format_count(len(members), 'file')}, {path.stat().st_size / 1e6:.1f} MB"


def _collect_members(results: Results) -> dict[str, Path | bytes]:
    """Collect {path in the archive: file}, laid out as the results, without files that the study no longer declares."""
    folder, root = results.folder, results.machine_folder
    stale = set(list_undeclared_results(folder))
    study_files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in SKIPPED_FOLDERS
    ]
    study_files = [path for path in study_files if path not in stale]
    run_files = results.list_records()
    for record in list(run_files):
        run_files += [other for name in RUN_FILES if (other := record.with_name(name)).is_file()]
    members = {path.relative_to(root).as_posix(): path for path in [*study_files, *run_files]}
    return {**members, **list_workflow_files()}


def list_workflow_files() -> dict[str, Path]:
    """List {path in the archive: file} of the workflow, its licence and how to cite it."""
    rules = [path.relative_to(ROOT) for path in sorted((ROOT / "rules").glob("*.smk"))]
    names = ["Snakefile", "LICENSE", "CITATION.cff", *(path.as_posix() for path in rules)]
    return {f"workflow/{name}": ROOT / name for name in names}
