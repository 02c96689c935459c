"""The exports that a study declares: checks, and their folders."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from study.contrib.exports import archive, perfetto
from study.core import paths, validation
from study.core.errors import StudyError
from study.core.files import write_aside
from study.core.wording import format_count
from study.experiment.study import Study

EXPORTS = ("archive", "perfetto")
INDEX = "index.csv"  # of the traces
COLUMNS = ("record", "file", "absent")


def check_exports(study: Study) -> None:
    """Raise `StudyError` for an export that does not exist, or one of runs where the study has none."""
    where = f"config/studies/{study.name}.yaml: exports"
    for name in study.exports:
        if name not in EXPORTS:
            raise StudyError(
                f"{where}: {name!r} is not one of {', '.join(EXPORTS)}{validation.suggest_nearest(name, EXPORTS)}"
            )
        if is_run_export(name) and not study.runs:
            raise StudyError(f"{where}: {name} needs runs; the study has none")


def is_run_export(name: str) -> bool:
    """True if an export is made from the runs alone, without tables, figures and findings."""
    return name == "perfetto"


def write_export(name: str, study: Study, of_machine: Path, folder: Path) -> Iterator[str]:
    """Write an export of a study into a folder of its own; yields lines for the user.

    Args:
        name: of the export.
        study: whose runs have ended.
        of_machine: the results, ``results/<machine>``.
        folder: the export's own. An export of runs has a file for each, and `INDEX`.

    Raises:
        StudyError: a file of the results is damaged.
    """
    if not is_run_export(name):
        folder.mkdir(parents=True, exist_ok=True)
        yield archive.export(archive.Results(study.name, of_machine), folder / f"{study.name}.tar.gz")
        return
    rows = [_write_run(run.directory, of_machine, folder) for run in study.runs]
    with write_aside(folder / INDEX) as aside, open(aside, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    for record, written, absent in rows:
        if not written:
            yield f"left out: {record}: {absent}"
    yield f"{folder}: {format_count(sum(bool(written) for _, written, _ in rows), 'file')}, and {INDEX}"


def _write_run(directory: str, of_machine: Path, folder: Path) -> tuple[str, str, str]:
    """Write the trace of a run; returns its row of the index, `COLUMNS`, without a file if there was nothing."""
    run, file = Path(paths.locate_run(of_machine, directory)), f"{directory}/{perfetto.FILE}"
    record = Path(paths.locate_record(of_machine, directory)).relative_to(of_machine).as_posix()
    try:
        absent = perfetto.write_trace(run, folder / file).absent
    except StudyError as error:
        if validation.load_valid_json(run / "outcome.json", "outcome")["status"] == "ok":
            raise
        return record, "", str(error)
    return record, file, "; ".join(f"{part}: {why}" for part, why in absent.items())
