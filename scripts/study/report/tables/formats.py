"""Our own table: the cost of formats for a matrix, to write, to store and to load."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import summarize
from study.data.formats import FORMATS
from study.experiment.study import Study
from study.report.tables.image_formats import is_of_images, of_loads
from study.report.tables.layout import Table
from study.report.tables.summary import notes, optional_columns

KEYS = ["machine", "benchmark", "dataset", "file", "rows", "columns", "page_cache", "loader"]


NEEDS = "a loading measurement of a format, such as hdf5"


def measures_formats(study: Study) -> bool:
    """Whether a study measures a format beside the plain array."""
    return any(
        set(entry.loaders) & set(FORMATS) - {"npy"}
        for entry in study.loading
        if not any(form.get("kind") == "images" for form in entry.dataset.spec["files"].values())
    )


@kinds.table(
    "formats",
    title="Formats of the converted matrix",
    look_for="What HDF5, Parquet, Feather, TFRecord and LMDB cost beside a plain array, to write and to load, when "
    "a file has 60,000 columns and when it has four.",
    needs=NEEDS,
    uses_loading=True,
    is_there=measures_formats,
)
def formats(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per file and format: seconds to write and to load, size, additional memory while loading."""
    chosen = loading[loading["loader"].isin(FORMATS) & ~is_of_images(loading)]
    rows = [
        _row(dict(zip(KEYS, key, strict=True)), group) for key, group in chosen.groupby(KEYS, sort=False, dropna=False)
    ]
    identity = (*KEYS[:-1], "format")
    shown = ["machine", "benchmark", "file", "rows", "columns", "page_cache", "format", "matrix_mb", "stored_mb",
             "store_s", "load_s", "added_memory_mb", "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    columns = [*shown, "dataset", "store_ci95_s", "load_ci95_s", "code_is_current", "records"]
    table = pd.DataFrame(rows, columns=columns)
    caption = (
        "Formats of a converted matrix: seconds to write it and to load it into memory, each in a process of its "
        "own; size of the file; and peak memory of loading beyond what the process had before. All give the same "
        "array, bit for bit. Parquet and Feather store each column of the matrix as a column of the file."
    )
    return Table("formats", caption, table, shown, optional_columns(shown), notes(table, "times"), identity)


def _row(row: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    ok = group[group["status"] == "ok"]
    row["format"] = row.pop("loader")
    row["matrix_mb"] = row["rows"] * row["columns"] * 4 / 1e6
    for name in ("store", "load"):
        sample = summarize(ok[f"{name}_s"])
        row[f"{name}_s"], row[f"{name}_ci95_s"] = sample.mean, sample.ci95
    row["stored_mb"] = ok["stored_mb"].median()
    row["added_memory_mb"] = (ok["peak_memory_mb"] - ok["imported_memory_mb"]).max()
    return row | of_loads(group)
