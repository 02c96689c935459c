"""The report's last section: every run and loading measurement with its record, and the profiles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import paths
from study.core.errors import StudyError
from study.experiment import applicable, schemas
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.records.failures import run_name
from study.records.renewal import current_record
from study.report.page import tables
from study.report.page.embedding import Embedding
from study.report.page.links import Link, Records, to_file
from study.report.tables.layout import differs_from_default

MOST_ROWS = 500  # a study with more runs has a list of links in place of a table of runs
COLUMNS = [*schemas.separating(), "epochs_per_rank", "batch_size_per_rank", "repeat", "status", "runtime_s",
           "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current", "record"]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A run or a loading measurement in a list: its id in the page, its record, a remark."""

    key: str
    record: Link
    note: str = ""


@dataclass(frozen=True)
class Profile:
    """The functions or operations of rank 0 of a profiled run that took most time."""

    title: str
    run: Link
    names: list[str]
    rows: list[list[str]]


def table_of_runs(
    runs: pd.DataFrame, planned: Iterable[PlannedRun], records: Records, space: Embedding
) -> tables.View | None:
    """Every run, with what tells runs apart; None if there are none, or too many for a table.

    runs: rows of ``runs.csv``. planned: the same runs, as the study plans them.
    """
    if not 0 < len(runs) <= MOST_ROWS:
        return None
    frame = runs[[name for name in COLUMNS if name in runs]].convert_dtypes()
    frame, partial = with_own_keys(frame, {str(Path(paths.record(".", run.directory))): run for run in planned})
    keys = [records.link(record).href.removeprefix("#") for record in frame["record"]]
    shown = [name for name in frame if name not in partial]
    return tables.of_frame(frame, "table-runs", "All runs", records.to_record, space, shown, keys=keys)


def with_own_keys(frame: pd.DataFrame, planned: Mapping[str, PlannedRun]) -> tuple[pd.DataFrame, list[str]]:
    """(``frame`` with the grid keys of each run only, the keys that need not be shown at first).

    A key that a run lacks has an empty cell, and one that all lack has no column. Where only some lack it, it is shown
    at first if the others do not have its default. planned: by record.
    """
    lacking = {record: applicable.lacking(run.parameters, run.spec) for record, run in planned.items()}
    emptied = {
        name: frame[name].mask([name in lacking.get(record, ()) for record in frame["record"]])
        for name in frame
        if any(name in each for each in lacking.values())
    }
    without = [name for name, column in emptied.items() if column.isna().all()]
    partial = [name for name, column in emptied.items()
               if name not in without and column.isna().any() and not _is_set(column)]  # fmt: skip
    return frame.assign(**emptied).drop(columns=without), partial


def _is_set(column: pd.Series) -> bool:
    return column.name not in PARAMETERS or differs_from_default(column)


def listed(records: Records) -> list[Entry]:
    """Every run as an entry with a link, where there are too many for a table."""
    if len(records.runs) <= MOST_ROWS:
        return []
    return [Entry(f"run-{n}", Link(record, to_file(record))) for n, record in enumerate(records.runs, 1)]


def loads(loading: pd.DataFrame, records: Records) -> list[Entry]:
    """Every loading measurement, with its number of loads."""
    counts = loading["record"].value_counts() if len(loading) else {}
    return [Entry(f"load-{n}", Link(record, to_file(record)), f"{counts[record]} loads")
            for n, record in enumerate(records.loading, 1)]  # fmt: skip


def profiles(runs: pd.DataFrame, records: Records, folder: Path) -> list[Profile]:
    """The top of each profiled run's profile. folder: the machine's results folder."""
    profiled = runs[runs["profile"].astype(bool) & (runs["status"] == "ok")] if len(runs) else runs
    return [_profile(run, records, folder) for run in profiled.to_dict("records")]


def _profiled(path: Path, section: str) -> dict[str, Any]:
    """section: of the record, with the profile."""
    profile = current_record(path)[section]
    if profile is None:
        raise StudyError(f"{path}: has no profile, but runs.csv says that the run was profiled; make runs.csv again")
    return profile


def _profile(run: dict[str, Any], records: Records, folder: Path) -> Profile:
    is_of_functions = not isinstance(run["profile"], str)
    top = pd.DataFrame(_profiled(folder / run["record"], "profile" if is_of_functions else "operations")["top"])
    title = run_name(run["benchmark"], run["scaling"], run["gpus"], run["loader"])
    if not is_of_functions:
        title += f", {run['framework']}: operations, seconds and calls per step"
    return Profile(title, records.link(run["record"]), [*map(str, top.columns)], tables.plain(top))
