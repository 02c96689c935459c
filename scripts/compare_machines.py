"""Make tables of one study's results on several machines, with the machine in each row."""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from study.core import paths
from study.core.errors import StudyError, exit_with_message
from study.records import tidy
from study.report.tables import TABLES


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "results", nargs="+", type=Path, help="results/<machine>/studies/<study>, each with runs.csv and loading.csv"
    )
    parser.add_argument("--output", required=True, type=Path, help="folder for the tables")
    arguments = parser.parse_args()
    _refuse_twice(arguments.results)
    runs, loading = (
        _joined(arguments.results, tidy.read_runs, "runs.csv"),
        _joined(arguments.results, tidy.read_loading, "loading.csv"),
    )
    for name in _in_all(arguments.results):
        table = TABLES[name].make(runs, loading)
        shown = table.shown if "machine" in table.shown else ["machine", *table.shown]
        machines = ", ".join(f"{_machine(folder)}{_hosts(runs, _machine(folder))}" for folder in arguments.results)
        whole = dataclasses.replace(table, caption=f"{machines}: {table.caption}", shown=shown)
        whole.write_to(arguments.output)
        print(arguments.output / f"{name}.md")


def _refuse_twice(folders: list[Path]) -> None:
    """Refuse two folders of one machine: their runs and loads would be counted as repeats."""
    seen = {}
    for folder in folders:
        runs = _joined([folder], tidy.read_runs, "runs.csv")
        loading = _joined([folder], tidy.read_loading, "loading.csv")
        for machine in sorted({*runs.get("machine", ()), *loading.get("machine", ())}):
            if machine in seen:
                raise StudyError(
                    f"{seen[machine]} and {folder} are both of machine {machine}; give each machine's once"
                )
            seen[machine] = folder


def _joined(folders: list[Path], read: Callable[[Path], pd.DataFrame], name: str) -> pd.DataFrame:
    """One tidy table of all machines; ``record`` then begins with the machine's folder."""
    frames = []
    for folder in folders:
        if not (folder / name).is_file():
            raise StudyError(
                f"{folder / name}: is not there; run the study on that machine, or copy its whole results folder"
            )
        frame = read(folder / name)
        frames.append(frame.assign(record=f"{_machine(folder)}/" + frame["record"]) if len(frame) else frame)
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _machine(folder: Path) -> str:
    """The machine whose results a study's folder is part of."""
    return paths.machine_folder(folder.resolve() / "runs.csv").name


def _hosts(runs: pd.DataFrame, machine: str) -> str:
    """The hosts of a machine's runs in brackets; empty where they were not recorded."""
    if not {"machine", "hosts"} <= set(runs):
        return ""
    named = runs.loc[runs["machine"] == machine, "hosts"].dropna().str.split()
    hosts = sorted(set(named.explode().dropna()))
    return f" ({', '.join(hosts)})" if hosts else ""


def _in_all(folders: list[Path]) -> list[str]:
    """The tables that every machine has, except those that compare runs of one machine."""
    found = set.intersection(*({path.stem for path in (folder / "tables").glob("*.csv")} for folder in folders))
    tables = [name for name in TABLES if name in found and not TABLES[name].compares_runs]
    if not tables:
        raise StudyError(f"{' and '.join(map(str, folders))} have no table in common; run the same study on each")
    return tables


if __name__ == "__main__":
    exit_with_message(main)
