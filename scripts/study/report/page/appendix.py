"""The report's last section: every run and loading measurement with its record, and the profiles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core.errors import StudyError
from study.core.wording import counted
from study.experiment import schemas
from study.records.renewal import current_record
from study.report.page import tables
from study.report.page.embedding import Embedding
from study.report.page.links import Link, Records, to_file

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


def table_of_runs(runs: pd.DataFrame, records: Records, space: Embedding) -> tables.View | None:
    """Every run, with what tells runs apart; None if there are none, or too many for a table."""
    if not 0 < len(runs) <= MOST_ROWS:
        return None
    frame = runs[[name for name in COLUMNS if name in runs]].convert_dtypes()
    keys = [records.link(record).href.removeprefix("#") for record in frame["record"]]
    return tables.of_frame(frame, "table-runs", "All runs", records.to_record, space, keys=keys)


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
    title = f"{run['benchmark']}, {run['scaling']} scaling, {counted(run['gpus'], 'rank')}, {run['loader']}"
    if not is_of_functions:
        title += f", {run['framework']}: operations, seconds and calls per step"
    return Profile(title, records.link(run["record"]), [*map(str, top.columns)], tables.plain(top))
