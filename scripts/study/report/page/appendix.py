"""The report's last section: every run and loading measurement with its record, and the profiles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.core import paths
from study.core.errors import StudyError
from study.experiment import applicability, schemas
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.records.failures import run_name
from study.records.renewal import current_record
from study.report.page import tables
from study.report.page.links import Embedding, Link, RecordLinks, to_address
from study.report.tables.layout import differs_from_default

MOST_ROWS = 500  # a study with more runs has a list of links in place of a table of runs
COLUMNS = [*schemas.list_separating_keys(), "epochs_per_rank", "batch_size_per_rank", "repeat", "status", "unproven",
           "runtime_s",
           "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current", "record"]  # fmt: skip


@dataclass(frozen=True)
class ListEntry:
    """A run or a loading measurement in a list. key: its id in the page."""

    key: str
    record: Link
    note: str = ""


@dataclass(frozen=True)
class Profile:
    """The functions of rank 0 of a profiled run that took most time."""

    title: str
    run: Link
    names: list[str]
    rows: list[list[str]]


def make_runs_table(
    runs: pd.DataFrame, planned: Iterable[PlannedRun], records: RecordLinks, space: Embedding
) -> tables.View | None:
    """Make the table of all runs; None if there are none, or too many for a table.

    runs: rows of ``runs.csv``. planned: the same runs, as the study plans them.
    """
    if not 0 < len(runs) <= MOST_ROWS:
        return None
    hidden = set() if failed_runs.mark_unproven(runs).any() else {"unproven"}
    frame = runs[[name for name in COLUMNS if name in runs and name not in hidden]].convert_dtypes()
    frame, partial = drop_foreign_keys(
        frame, {str(Path(paths.locate_record(".", run.directory))): run for run in planned}
    )
    keys = [records.make_link(record).href.removeprefix("#") for record in frame["record"]]
    first_columns = [name for name in frame if name not in partial]
    return tables.make_view(frame, "table-runs", "All runs", records.make_file_links, space, first_columns, keys=keys)


def drop_foreign_keys(frame: pd.DataFrame, planned: Mapping[str, PlannedRun]) -> tuple[pd.DataFrame, list[str]]:
    """Empty the cells of grid keys that a run does not have; returns the frame, and the keys to hide at first.

    A key that a run lacks has an empty cell, and one that all lack has no column. Where only some lack it, it is shown
    at first if the others do not have its default. planned: by record.
    """
    lacking = {
        record: applicability.find_inapplicable_keys(run.parameters, run.spec) for record, run in planned.items()
    }
    emptied = {
        name: frame[name].mask([name in lacking.get(record, ()) for record in frame["record"]])
        for name in frame
        if any(name in each for each in lacking.values())
    }
    empty = [name for name, column in emptied.items() if column.isna().all()]
    partial = [name for name, column in emptied.items()
               if name not in empty and column.isna().any() and not _has_other_than_default(column)]  # fmt: skip
    return frame.assign(**emptied).drop(columns=empty), partial


def _has_other_than_default(column: pd.Series) -> bool:
    """True if a column is no grid key, or has other values than the key's default."""
    return column.name not in PARAMETERS or differs_from_default(column)


def list_runs(records: RecordLinks) -> list[ListEntry]:
    """List every run as an entry with a link, where there are too many for a table."""
    if len(records.runs) <= MOST_ROWS:
        return []
    return [ListEntry(f"run-{n}", Link(record, to_address(record))) for n, record in enumerate(records.runs, 1)]


def list_loads(loading: pd.DataFrame, records: RecordLinks) -> list[ListEntry]:
    """List every loading measurement with its number of loads."""
    counts = loading["record"].value_counts() if len(loading) else {}
    return [ListEntry(f"load-{n}", Link(record, to_address(record)), f"{counts[record]} loads")
            for n, record in enumerate(records.loading, 1)]  # fmt: skip


def read_profiles(runs: pd.DataFrame, records: RecordLinks, folder: Path) -> list[Profile]:
    """Read the top of each profiled run's profile. folder: the machine's results folder."""
    profiled = failed_runs.keep_proven(runs[runs["profile"].astype(bool)]) if len(runs) else runs
    return [_make_profile(run, records, folder) for run in profiled.to_dict("records")]


def _load_profile(path: Path) -> dict[str, Any]:
    """Load the profile in a record; raises `StudyError` if it is empty."""
    profile = current_record(path)["profile"]
    if profile is None:
        raise StudyError(f"{path}: has no profile, but runs.csv says that the run was profiled; make runs.csv again")
    return profile


def _make_profile(run: dict[str, Any], records: RecordLinks, folder: Path) -> Profile:
    """Read the top functions of a profiled run."""
    top = pd.DataFrame(_load_profile(folder / run["record"])["top"])
    title = run_name(run["benchmark"], run["scaling"], run["gpus"], run["loader"])
    return Profile(title, records.make_link(run["record"]), [*map(str, top.columns)], tables.format_cells(top))
