"""Our own table: the cost of formats for a matrix, to write, to store and to load."""

from typing import Any

import pandas as pd

from study.core.statistics import summarize
from study.data.formats import FORMATS
from study.experiment.study import Study
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.image_formats import is_of_images, of_loads

KEYS = ["machine", "benchmark", "dataset", "file", "rows", "columns", "page_cache", "loader"]


def measures_formats(study: Study) -> bool:
    """Whether a study measures a format beside the plain array."""
    return any(
        set(entry.loaders) & set(FORMATS) - {"npy"}
        for entry in study.loading
        if not any(form.get("kind") == "images" for form in entry.dataset.spec["files"].values())
    )


@table_rows("formats", is_there=measures_formats)
def formats(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per file and format: seconds to write and to load, size, additional memory while loading."""
    chosen = loading[loading["loader"].isin(FORMATS) & ~is_of_images(loading)]
    rows = [
        _row(dict(zip(KEYS, key, strict=True)), group) for key, group in chosen.groupby(KEYS, sort=False, dropna=False)
    ]
    declared = load_declarations()["formats"]["columns"]
    columns = [*declared, "dataset", "store_ci95_s", "load_ci95_s", "code_is_current", "records"]
    table = pd.DataFrame(rows, columns=columns)
    return Rows(table)


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
