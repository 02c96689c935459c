"""What the formats that a matrix can be kept in cost: to write, to keep, to load."""

import pandas as pd

from study.core.statistics import summarize
from study.data.formats import FORMATS
from study.report.tables.layout import Table
from study.report.tables.summary import joined_records, notes, optional_columns

KEYS = ["machine", "benchmark", "file", "rows", "columns", "page_cache", "loader"]


def formats(runs, loading):
    """A row for each file and format: seconds to write and to load, size, memory that loading adds."""
    chosen = loading[loading["loader"].isin(FORMATS)]
    rows = [
        _row(dict(zip(KEYS, key, strict=True)), group) for key, group in chosen.groupby(KEYS, sort=False, dropna=False)
    ]
    shown = [*KEYS[:-1], "format", "matrix_mb", "stored_mb", "store_s", "load_s", "added_memory_mb", "repeats_ok",
             "repeats_failed", "failures"]  # fmt: skip
    columns = [*shown, "store_ci95_s", "load_ci95_s", "code_is_current", "records"]
    table = pd.DataFrame(rows, columns=columns)
    caption = (
        "formats of a converted matrix: seconds to write it and to load it into memory, each in a process of its own, "
        "size of the file, and memory that loading takes beyond what the process had before, at its peak. All give the "
        "same array, bit for bit. Parquet and Feather keep a column a column."
    )
    return Table("formats", caption, table, shown, optional_columns(shown), notes(table, "times"))


def _row(row, group):
    ok = group[group["status"] == "ok"]
    row["format"] = row.pop("loader")
    row["matrix_mb"] = row["rows"] * row["columns"] * 4 / 1e6
    for name in ("store", "load"):
        sample = summarize(ok[f"{name}_s"])
        row[f"{name}_s"], row[f"{name}_ci95_s"] = sample.mean, sample.ci95
    row["stored_mb"] = ok["stored_mb"].median()
    row["added_memory_mb"] = (ok["peak_memory_mb"] - ok["imported_memory_mb"]).max()
    row["repeats_ok"], row["repeats_failed"] = len(ok), len(group) - len(ok)
    row["failures"] = "; ".join(group["message"].dropna().unique()) or None
    row["code_is_current"] = bool(group["code_is_current"].all())
    row["records"] = joined_records(group["record"])
    return row
