"""Read test of a machine's storage, on this host: data_dir, and the storage folders of the machine's file."""

import argparse
import socket
from pathlib import Path

import study  # noqa: F401  isort: skip  before pandas, so that a foreign one is refused
import pandas as pd

from study.core import configuration, number_types
from study.core.errors import StudyError, exit_with_message
from study.core.files import write_text
from study.core.statistics import summarize
from study.data import read_test
from study.machines import machine, machine_lock, storage
from study.records import read_tests

LONGEST_READ_S = 600  # for other timed runs of this user, which wait for the end of the test


def main() -> None:
    """Read the command line, measure, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="local", help="a file name in config/machines without .yaml")
    parser.add_argument("--size-mb", type=number_types.count, default=1000, help="size of the file, 10^6 bytes")
    parser.add_argument("--repeats", type=number_types.count, default=5, help="cold and warm reads of each storage")
    parser.add_argument(
        "--output",
        type=Path,
        help="a CSV file with one row per read; by default results/MACHINE/storage.csv, which table storage shows",
    )
    arguments = parser.parse_args()
    folders = _folders(arguments.machine)
    reads = 2 * len(folders) * arguments.repeats * LONGEST_READ_S
    with machine_lock.hold_lock(f"read test of the storage of {arguments.machine}", reads):
        table = _measured(folders, arguments.size_mb, arguments.repeats)
    output = arguments.output or read_tests.file(Path(configuration.settings()["results_dir"]) / arguments.machine)
    write_text(output, table.to_csv(index=False))
    print("\n".join(_summary(table)))


def _folders(name: str) -> dict[str, str]:
    """{storage: folder}; raises `StudyError` if one cannot be written to."""
    settings = machine.load(name)
    here = settings | {"storage": settings.get("storage", {}) | storage.list_node_folders(settings)}
    refused = storage.list_refusals(here["storage"], here)
    if refused:
        where = "; call this on a node" if refused[0].split(": ")[1] in storage.list_node_folders(settings) else ""
        raise StudyError(f"config/machines/{name}.yaml: {refused[0]}{where}")
    usual = configuration.settings()["data_dir"]
    return {**({storage.DEFAULT: usual} if Path(usual).is_dir() else {}), **storage.list_folders(here)}


def _measured(folders: dict[str, str], size_mb: int, repeats: int) -> pd.DataFrame:
    """One row per read; the reads alternate between the storages, so that a change over time meets all alike."""
    if not folders:
        raise StudyError("there is no folder to read from: no data_dir yet, and the machine's file has no storage")
    tests = {name: read_test.measure(folder, size_mb, repeats) for name, folder in folders.items()}
    rounds = zip(*tests.values(), strict=True)
    here = socket.gethostname()
    rows = [{"storage": name, "host": here, **row} for each in rounds for name, row in zip(tests, each, strict=True)]
    return pd.DataFrame(rows)


def _summary(table: pd.DataFrame) -> list[str]:
    """Mean and 95 % interval of each storage, cold and warm."""
    lines = []
    for (name, cache, tool), reads in table.groupby(["storage", "page_cache", "tool"], sort=False):
        sample = summarize(reads["gb_per_s"])
        told = f"{sample.mean:.2f} ± {sample.ci95:.2f} GB/s" if sample.n else f"not measured: {reads['reason'].iloc[0]}"
        lines.append(f"storage {name}, page cache {cache}, {tool}: {told}")
    return lines


if __name__ == "__main__":
    exit_with_message(main)
