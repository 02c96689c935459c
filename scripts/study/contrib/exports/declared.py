"""The exports that a study declares: what they are made from, and their folders."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from study.contrib.exports.kinds import EXPORTS, OfRun, OfStudy, Results
from study.core import checked, paths
from study.core.errors import StudyError
from study.core.files import written_aside
from study.core.wording import counted
from study.experiment.study import Study

INDEX = "index.csv"  # in the folder of an export of runs
COLUMNS = ("record", "file", "absent")


def check(study: Study) -> None:
    """Raise `StudyError` for an export that does not exist, or one of runs where the study has none."""
    where = f"config/studies/{study.name}.yaml: exports"
    for name in study.exports:
        if name not in EXPORTS:
            raise StudyError(f"{where}: {name!r} is not one of {', '.join(EXPORTS)}{checked.nearest(name, EXPORTS)}")
        if isinstance(EXPORTS[name], OfRun) and not study.runs:
            raise StudyError(f"{where}: {name} needs runs; the study has none")


def is_of_runs(name: str) -> bool:
    """Whether an export is made from the runs alone, without tables, figures and findings."""
    return isinstance(EXPORTS[name], OfRun)


def write(name: str, study: Study, of_machine: Path, folder: Path) -> Iterator[str]:
    """Write an export of a study into a folder of its own; yields lines that tell of it.

    Args:
        name: of the export.
        study: whose runs have ended.
        of_machine: the results, ``results/<machine>``.
        folder: the export's own. An export of runs has a file for each, and `INDEX`.

    Raises:
        StudyError: a file of the results is damaged.
    """
    kind = EXPORTS[name]
    if isinstance(kind, OfStudy):
        folder.mkdir(parents=True, exist_ok=True)
        yield kind.write(Results(study.name, of_machine), folder / kind.name(study.name))
        return
    rows = [_of_run(kind, run.directory, of_machine, folder) for run in study.runs]
    with written_aside(folder / INDEX) as aside, open(aside, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    for record, made, absent in rows:
        if not made:
            yield f"left out: {record}: {absent}"
    yield f"{folder}: {counted(sum(bool(made) for _, made, _ in rows), 'file')}, and {INDEX}"


def _of_run(kind: OfRun, directory: str, of_machine: Path, folder: Path) -> tuple[str, str, str]:
    """A row of the index, as `COLUMNS`; without a file where a run failed before there was anything to write."""
    run, file = Path(paths.run_folder(of_machine, directory)), f"{directory}/{kind.file}"
    record = Path(paths.record(of_machine, directory)).relative_to(of_machine).as_posix()
    try:
        absent = kind.write(run, folder / file).absent
    except StudyError as error:
        if checked.load_json(run / "outcome.json", "outcome")["status"] == "ok":
            raise
        return record, "", str(error)
    return record, file, "; ".join(f"{part}: {why}" for part, why in absent.items())
