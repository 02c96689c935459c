"""Tables over the results of several machines side by side, each row with its machine."""

import argparse
from pathlib import Path

import pandas as pd

from study.core.errors import StudyError, exit_with_message
from study.records import tidy
from study.report.tables import TABLES
from study.report.tables.layout import Table

ONE_MACHINE = {"icpp2019_claims"}  # sets a machine's own runs against each other


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="results/<machine>, each with runs.csv and loading.csv")
    parser.add_argument("--output", required=True, type=Path, help="folder for the tables")
    arguments = parser.parse_args()
    _refuse_twice(arguments.results)
    runs, loading = (_joined(arguments.results, name) for name in ("runs.csv", "loading.csv"))
    for name in _in_all(arguments.results):
        table = TABLES[name].make(runs, loading)
        shown = table.shown if "machine" in table.shown else ["machine", *table.shown]
        machines = ", ".join(folder.name for folder in arguments.results)
        whole = Table(name, f"{machines}: {table.caption}", table.frame, shown, table.optional, table.notes)
        whole.write(*(arguments.output / f"{name}.{form}" for form in ("csv", "md", "tex", "html")))
        print(arguments.output / f"{name}.md")


def _refuse_twice(folders):
    """Runs of two folders with one machine's name would be taken for repeats."""
    seen = {}
    for folder in folders:
        for machine in _joined([folder], "runs.csv").get("machine", pd.Series(dtype=object)).unique():
            if machine in seen:
                raise StudyError(
                    f"{seen[machine]} and {folder} are both of machine {machine}; give each machine's once"
                )
            seen[machine] = folder


def _joined(folders, name):
    """One tidy table of all machines; ``record`` then begins with the machine's folder."""
    frames = []
    for folder in folders:
        if not (folder / name).is_file():
            raise StudyError(
                f"{folder / name}: is not there; run the study on that machine, or copy its whole results folder"
            )
        frame = tidy.read_frame(folder / name)
        frames.append(frame.assign(record=f"{folder.name}/" + frame["record"]) if len(frame) else frame)
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _in_all(folders):
    """The tables that every machine has."""
    found = set.intersection(*({path.stem for path in (folder / "tables").glob("*.csv")} for folder in folders))
    tables = [name for name in TABLES if name in found - ONE_MACHINE]
    if not tables:
        raise StudyError(f"{' and '.join(map(str, folders))} have no table in common; run the same study on each")
    return tables


if __name__ == "__main__":
    exit_with_message(main)
