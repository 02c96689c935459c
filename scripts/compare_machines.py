"""Make tables of one study's results on several machines, or by several versions of the code, side by side.

The machine is in each row. The table ``comparison`` has ratios to the first results, with intervals.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import study  # noqa: F401  isort: skip  before pandas, so that a foreign one is refused
import pandas as pd

from study.compare import likeness
from study.core import paths
from study.core.csv_files import stacked
from study.core.errors import StudyError, exit_with_message
from study.core.wording import counted
from study.records import tidy
from study.report.tables import TABLES
from study.report.tables.comparison import comparison
from study.report.tables.kinds import with_own_keys

LABELLED = re.compile(r"(?P<label>[A-Za-z0-9_.-]+)=(?P<folder>.+)")


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "results",
        nargs="+",
        type=_given,
        metavar="[LABEL=]FOLDER",
        help="results/<machine>/studies/<study> with runs.csv and loading.csv; a label replaces the machine's name",
    )
    parser.add_argument("--output", required=True, type=Path, help="folder for the tables")
    arguments = parser.parse_args()
    results: list[Results] = arguments.results
    _refuse_twice(results)
    runs, loading = _joined(results, tidy.read_runs, "runs.csv"), _joined(results, tidy.read_loading, "loading.csv")
    _refuse_copies(runs)
    names = ", ".join(f"{each.name}{_hosts(runs, each.name)}" for each in results)
    tables = [TABLES[name].make(runs, loading) for name in _in_all(results)]
    tables += [comparison(runs, results[0].name)] if len(runs) and len(results) > 1 else []
    for table in (with_own_keys(each, runs) for each in tables):
        shown = table.shown if "machine" in table.shown else ["machine", *table.shown]
        dataclasses.replace(table, caption=f"{names}: {table.caption}", shown=shown).write_to(arguments.output)
        print(arguments.output / f"{table.name}.md")


@dataclasses.dataclass(frozen=True)
class Results:
    """A study's folder of results, and the label that takes the place of its machine's name; None for that name."""

    folder: Path
    label: str | None

    @property
    def name(self) -> str:
        """The label, or the machine whose results the folder is part of."""
        return self.label or paths.machine_folder(paths.absolute(self.folder) / "runs.csv").name

    @property
    def is_put_aside(self) -> bool:
        """Whether these are the results of an older version of the code."""
        above = paths.absolute(self.folder).parents
        return len(above) > 2 and above[2].name == paths.VERSIONS


def _given(text: str) -> Results:
    """``LABEL=FOLDER`` or ``FOLDER``; the label of a version that was put aside is the version."""
    if found := LABELLED.fullmatch(text):
        return Results(Path(found["folder"]), found["label"])
    machine = paths.machine_folder(paths.absolute(text) / "runs.csv")
    return Results(Path(text), machine.name if machine.parent.name == paths.VERSIONS else None)


def _refuse_twice(results: list[Results]) -> None:
    """Refuse two folders of one machine: their runs and loads would be counted as repeats."""
    seen: dict[str, Path] = {}
    for each in results:
        runs = _joined([each], tidy.read_runs, "runs.csv")
        loading = _joined([each], tidy.read_loading, "loading.csv")
        for machine in sorted({*runs.get("machine", ()), *loading.get("machine", ())}):
            if machine in seen:
                raise StudyError(
                    f"{seen[machine]} and {each.folder} are both of machine {machine}; give each machine's once, or "
                    "give each a label: old=FOLDER new=FOLDER"
                )
            seen[machine] = each.folder


def _refuse_copies(runs: pd.DataFrame) -> None:
    """Refuse results whose runs are all the same: a copy of a folder has no second measurement."""
    twice = list(likeness.find_copied_runs(runs)) if len(runs) else []
    known = {record for records in twice for record in records}
    for machine, own in runs.groupby("machine") if twice else ():
        if set(own["record"]) <= known:
            one, other = twice[0][:2]
            raise StudyError(
                f"all {counted(len(own), 'run')} of {machine} are also in the other results ({one} and {other} are one "
                "run): a copy compared with itself; give results of runs that were made separately"
            )


def _joined(results: list[Results], read: Callable[[Path], pd.DataFrame], name: str) -> pd.DataFrame:
    """One tidy table of all results; ``record`` then begins with the machine or label."""
    frames = []
    for each in results:
        if each.is_put_aside and name == "loading.csv":
            continue  # only runs are put aside
        if not (each.folder / name).is_file():
            raise StudyError(
                f"{each.folder / name}: is not there; run the study on that machine, or copy its whole results folder"
            )
        frame = read(each.folder / name)
        if len(frame):
            frame["record"] = f"{each.name}/" + frame["record"]
            frame["machine"] = each.label or frame["machine"]
        frames.append(frame)
    return stacked(frames)


def _hosts(runs: pd.DataFrame, machine: str) -> str:
    """The hosts of a machine's runs in brackets; empty where they were not recorded."""
    if not {"machine", "hosts"} <= set(runs):
        return ""
    named = runs.loc[runs["machine"] == machine, "hosts"].dropna().str.split()
    hosts = sorted(set(named.explode().dropna()))
    return f" ({', '.join(hosts)})" if hosts else ""


def _in_all(results: list[Results]) -> list[str]:
    """The tables that every machine has, except those that compare runs of one machine.

    A version that was put aside has no tables of its own.
    """
    folders = [each.folder for each in results]
    made = [folder / "tables" for folder in folders if (folder / "tables").is_dir()]
    if not made:
        return []
    found = set.intersection(*({path.stem for path in folder.glob("*.csv")} for folder in made))
    tables = [name for name in TABLES if name in found and not TABLES[name].compares_runs]
    if not tables:
        raise StudyError(f"{' and '.join(map(str, folders))} have no table in common; run the same study on each")
    return tables


if __name__ == "__main__":
    exit_with_message(main)
