"""Our own table: what it costs to read images in each format, and to read and decode them."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import summarize
from study.experiment.study import Study
from study.records.names import join_records
from study.report.tables.layout import Table
from study.report.tables.summary import notes, optional_columns

KEYS = ["machine", "benchmark", "dataset", "file", "rows", "size_mb", "page_cache", "loader"]


def measures_images(study: Study) -> bool:
    """Whether a study measures a loader on images."""
    return any(form.get("kind") == "images" for entry in study.loading for form in entry.dataset.spec["files"].values())


def is_of_images(loading: pd.DataFrame) -> pd.Series:
    """Which loads are of images: their loader is measured with decoding too."""
    if "decode_s" not in loading:
        return pd.Series(False, index=loading.index)
    return loading["decode_s"].notna()


@kinds.table(
    "image_formats",
    title="Input formats of images",
    look_for="How many images per second each format gives one thread, encoded and decoded. The difference is the "
    "decoder's, and has little to do with the format.",
    needs="a loading measurement of images",
    uses_loading=True,
    is_there=measures_images,
)
def image_formats(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per file and format: seconds and images per second, to read, and to read and decode."""
    chosen = loading[is_of_images(loading)]
    rows = [
        _row(dict(zip(KEYS, key, strict=True)), group) for key, group in chosen.groupby(KEYS, sort=False, dropna=False)
    ]
    shown = ["machine", "benchmark", "file", "images", "encoded_mb", "page_cache", "format", "read_s", "decode_s",
             "read_images_per_s", "decoded_images_per_s", "repeats_ok"]  # fmt: skip
    columns = [*shown, "dataset", "read_ci95_s", "decode_ci95_s", "code_is_current", "records"]
    table = pd.DataFrame(rows, columns=columns)
    caption = (
        "input formats of images: seconds to read all images of a file (encoded; with memory their pixels), and to "
        "read and decode them, each by one thread of a new process. All give the same pixels, bit for bit."
    )
    identity = ("machine", "benchmark", "dataset", "file", "images", "encoded_mb", "page_cache", "format")
    return Table("image_formats", caption, table, shown, optional_columns(shown), notes(table, "times"), identity)


def _row(row: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    row["images"], row["encoded_mb"], row["format"] = row.pop("rows"), row.pop("size_mb"), row.pop("loader")
    for name, column in (("read", "load_s"), ("decode", "decode_s")):
        sample = summarize(group[column])
        row[f"{name}_s"], row[f"{name}_ci95_s"] = sample.mean, sample.ci95
    row["read_images_per_s"] = row["images"] / row["read_s"]
    row["decoded_images_per_s"] = row["images"] / row["decode_s"]
    row["repeats_ok"] = len(group)
    row["code_is_current"] = bool(group["code_is_current"].all())
    row["records"] = join_records(group["record"])
    return row
