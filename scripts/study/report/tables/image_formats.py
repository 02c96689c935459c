"""Our own table: what it costs to read images in each format, and to read and decode them."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study import workloads
from study.core import configuration
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
    """Which loads, failed ones too, are of images: decoding was measured of the file, or the benchmark's are images."""
    if loading.empty:
        return pd.Series(False, index=loading.index)
    decoded = loading.get("decode_s", pd.Series(index=loading.index, dtype=float)).notna()
    of_file = decoded.groupby([loading[name] for name in ("benchmark", "dataset", "file")]).transform("any")
    others = loading.loc[~of_file, "benchmark"].unique()
    return of_file | loading["benchmark"].isin([name for name in others if _has_images(name)])


def _has_images(benchmark: str) -> bool:
    """Whether the samples of a benchmark are images; no for one that is not here, but in another machine's results."""
    if benchmark not in configuration.files("benchmarks"):
        return False
    return workloads.get(benchmark, configuration.load_named("benchmarks", benchmark)).kind == "images"


@kinds.table(
    "image_formats",
    title="Input formats of images",
    look_for="How many images per second each format gives one thread, encoded and decoded, and what of the time per "
    "image is the decoder's own. The rest is reading, scaling and the pipeline.",
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
             "read_images_per_s", "decoded_images_per_s", "time_per_image_s",
             "decoder_per_image_s", "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    columns = [*shown, "dataset", "read_ci95_s", "decode_ci95_s", "code_is_current", "records"]
    table = pd.DataFrame(rows, columns=columns)
    caption = (
        "Input formats of images: seconds to read all images of a file (encoded; with memory their pixels), and to "
        "read and decode them, each by one thread of a new process. All give the same pixels, bit for bit. "
        "time_per_image_s: to read, decode and scale one image. decoder_per_image_s: the part of that which the "
        "decoder takes (libjpeg, of images in memory)."
    )
    identity = ("machine", "benchmark", "dataset", "file", "images", "encoded_mb", "page_cache", "format")
    return Table("image_formats", caption, table, shown, optional_columns(shown), notes(table, "times"), identity)


def _row(row: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    ok = group[group["status"] == "ok"]
    row["images"], row["encoded_mb"], row["format"] = row.pop("rows"), row.pop("size_mb"), row.pop("loader")
    for name, column in (("read", "load_s"), ("decode", "decode_s")):
        sample = summarize(ok[column])
        row[f"{name}_s"], row[f"{name}_ci95_s"] = sample.mean, sample.ci95
    row["read_images_per_s"] = row["images"] / row["read_s"]
    row["decoded_images_per_s"] = row["images"] / row["decode_s"]
    row["time_per_image_s"] = row["decode_s"] / row["images"]
    row["decoder_per_image_s"] = summarize(ok["decoder_s"]).mean / row["images"]
    return row | of_loads(group)


def of_loads(group: pd.DataFrame) -> dict[str, Any]:
    """The columns of a row that say of which loads it is made. group: the loads, failed ones too."""
    failed = int((group["status"] != "ok").sum())
    return {
        "repeats_ok": len(group) - failed,
        "repeats_failed": failed,
        "failures": "; ".join(group["message"].dropna().unique()) or None,
        "code_is_current": bool(group["code_is_current"].all()),
        "records": join_records(group["record"]),
    }
