"""The read test of a machine's storage, as columns beside its runs; ``scripts/read_storage.py`` writes it.

A run does not make it: it says how fast a folder is read by itself, on the host and at the time of the test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from study.core import paths
from study.core.csv_files import FINITE, NAME, TEXT, read_csv
from study.core.statistics import summarize

COLUMNS = ["read_test_cold_gb_per_s", "read_test_cold_ci95_gb_per_s", "read_test_warm_gb_per_s",
           "read_test_warm_ci95_gb_per_s", "read_test_tool", "read_test_reason"]  # fmt: skip


KINDS = {"storage": NAME, "tool": NAME, "page_cache": NAME, "gb_per_s": FINITE, "reason": TEXT}  # columns of the file


def file(results: str | Path) -> Path:
    """Where the read test of a machine is. results: the machine's results folder."""
    return Path(results) / "storage.csv"


def add_read_tests(runs: pd.DataFrame, results: Path) -> pd.DataFrame:
    """``runs`` with `COLUMNS`: means in 10^9 bytes per second with 95 % intervals, or ``read_test_reason``.

    runs: with the column ``storage``.
    """
    measured = _summarize_storages(results)
    missing = f"no read test yet: python scripts/read_storage.py --machine {paths.find_machine_name(results)}"
    rows = [measured.get(storage, {"read_test_reason": missing}) for storage in runs["storage"]]
    return runs.join(pd.DataFrame(rows, columns=COLUMNS, index=runs.index))


def _summarize_storages(results: Path) -> dict[str, dict[str, Any]]:
    """{storage: its values of `COLUMNS`}."""
    if not file(results).exists():
        return {}
    reads = read_csv(file(results), KINDS)
    return {str(storage): _summary(each) for storage, each in reads.groupby("storage", sort=False)}


def _summary(reads: pd.DataFrame) -> dict[str, Any]:
    values: dict[str, Any] = {"read_test_tool": "; ".join(reads["tool"].unique())}
    for cache in ("cold", "warm"):
        name = f"read_test_{cache}"
        sample = summarize(reads.loc[reads["page_cache"] == cache, "gb_per_s"])
        values[f"{name}_gb_per_s"], values[f"{name}_ci95_gb_per_s"] = sample.mean, sample.ci95
    values["read_test_reason"] = "; ".join(reads["reason"].dropna().unique()) or None
    return values
