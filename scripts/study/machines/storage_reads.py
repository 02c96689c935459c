"""The read test of a machine's storages: data_dir, and the storage folders of the machine's file."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from study.core import configuration
from study.core.errors import StudyError
from study.core.statistics import summarize
from study.data import read_test
from study.machines import machine, storage


def find_folders(name: str) -> dict[str, str]:
    """{storage: folder} of a machine; raises `StudyError` if one cannot be written to, or if there is none."""
    settings = machine.load(name)
    here = settings | {"storage": settings.get("storage", {}) | storage.list_node_folders(settings)}
    refused = storage.list_refusals(here["storage"], here)
    if refused:
        where = "; call this on a node" if refused[0].split(": ")[1] in storage.list_node_folders(settings) else ""
        raise StudyError(f"config/machines/{name}.yaml: {refused[0]}{where}")
    usual = configuration.load_settings()["data_dir"]
    folders = {**({storage.DEFAULT: usual} if Path(usual).is_dir() else {}), **storage.list_folders(here)}
    if not folders:
        raise StudyError("there is no folder to read from: no data_dir yet, and the machine's file has no storage")
    return folders


def read_in_turn(folders: Mapping[str, str], size_mb: int, repeats: int) -> pd.DataFrame:
    """One row per read; the reads alternate between the storages, so that a change over time meets all alike."""
    tests = {name: read_test.measure_reads(folder, size_mb, repeats) for name, folder in folders.items()}
    rounds = zip(*tests.values(), strict=True)
    host = socket.gethostname()
    rows = [{"storage": name, "host": host, **row} for each in rounds for name, row in zip(tests, each, strict=True)]
    return pd.DataFrame(rows)


def summarize_reads(reads: pd.DataFrame) -> Iterator[str]:
    """Mean and 95 % interval of each storage, cold and warm, as a line each."""
    for (name, cache, tool), group in reads.groupby(["storage", "page_cache", "tool"], sort=False):
        sample = summarize(group["gb_per_s"])
        speed = (
            f"{sample.mean:.2f} ± {sample.ci95:.2f} GB/s" if sample.n else f"not measured: {group['reason'].iloc[0]}"
        )
        yield f"storage {name}, page cache {cache}, {tool}: {speed}"
