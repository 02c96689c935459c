"""The report's last section: every run and loading measurement with its record."""

from dataclasses import dataclass

import pandas as pd

from study.compare import failed_runs
from study.experiment import schemas
from study.records import own_keys
from study.report.page import tables
from study.report.page.links import Embedding, Link, RecordLinks, to_address

MOST_ROWS = 500  # a study with more runs has a list of links in place of a table of runs
COLUMNS = [*schemas.list_separating_keys(), "epochs_per_rank", "batch_size_per_rank", "repeat", "status", "unproven",
           "disturbed", "runtime_s",
           "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current", "record"]  # fmt: skip


@dataclass(frozen=True)
class ListEntry:
    """A run or a loading measurement in a list. key: its id in the page."""

    key: str
    record: Link
    note: str = ""


def make_runs_table(runs: pd.DataFrame, records: RecordLinks, space: Embedding) -> tables.View | None:
    """Make the table of all runs; None if there are none, or too many for a table. runs: rows of ``runs.csv``."""
    if not 0 < len(runs) <= MOST_ROWS:
        return None
    hidden = set() if failed_runs.mark_unproven(runs).any() else {"unproven"}
    frame, _ = own_keys.drop_lacking_keys(
        runs[[name for name in COLUMNS if name in runs]], own_keys.list_lacking_columns(runs)
    )
    frame = frame.convert_dtypes()
    keys = [records.make_link(record).href.removeprefix("#") for record in frame["record"]]
    first_columns = [name for name in frame if name not in hidden]
    return tables.make_view(frame, "table-runs", "All runs", records.make_file_links, space, first_columns, keys=keys)


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
