"""One study's results on several machines, or by several versions of the code, in the same tables."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import failed_runs, likeness
from study.compare.result_sets import compare_results
from study.core import paths
from study.core.csv_files import stack_tables
from study.core.errors import StudyError
from study.core.wording import format_count
from study.records import tidy
from study.records.names import join_records
from study.report.tables import TABLES
from study.report.tables.declared import load_verb_table, make_verb_table
from study.report.tables.kinds import gives_timings, select_runs, with_own_keys
from study.report.tables.layout import Table
from study.report.tables.summary import POINT, notes, steady

QUANTITIES = ("runtime_s", "load_s", "train_s", "time_per_epoch_steady_s", "time_per_step_s")
KEYS = [name for name in POINT if name not in ("machine", "memory_mode")]  # the mode is a property of the machine
LABELLED = re.compile(r"(?P<label>[A-Za-z0-9_.-]+)=(?P<folder>.+)")


@dataclasses.dataclass(frozen=True)
class Results:
    """A study's folder of results, and the label that takes the place of its machine's name; None for that name."""

    folder: Path
    label: str | None

    @property
    def name(self) -> str:
        """The label, or the machine whose results the folder is part of."""
        return self.label or paths.find_machine_folder(paths.make_absolute(self.folder) / "runs.csv").name

    @property
    def is_put_aside(self) -> bool:
        """Whether these are the results of an older version of the code."""
        above = paths.make_absolute(self.folder).parents
        return len(above) > 2 and above[2].name == paths.VERSIONS


def parse_results(text: str) -> Results:
    """``LABEL=FOLDER`` or ``FOLDER``; the label of a version that was put aside is the version."""
    if match := LABELLED.fullmatch(text):
        return Results(Path(match["folder"]), match["label"])
    machine = paths.find_machine_folder(paths.make_absolute(text) / "runs.csv")
    return Results(Path(text), machine.name if machine.parent.name == paths.VERSIONS else None)


def make_tables(results: list[Results]) -> Iterator[Table]:
    """The tables that all results have, with the machine in each row, and the table ``comparison``.

    Raises `StudyError` for results of one machine twice, for copies, and for results without a table in common.
    """
    _refuse_twice(results)
    runs, loading = _join(results, tidy.read_runs, "runs.csv"), _join(results, tidy.read_loading, "loading.csv")
    _refuse_copies(runs)
    names = ", ".join(f"{each.name}{_format_hosts(runs, each.name)}" for each in results)
    tables = [TABLES[name].make(runs, loading) for name in _list_common_tables(results)]
    tables += [compare_machines(runs, results[0].name)] if len(runs) and len(results) > 1 else []
    for table in (with_own_keys(each, runs) for each in tables):
        columns = table.shown_columns if "machine" in table.shown_columns else ["machine", *table.shown_columns]
        yield dataclasses.replace(table, caption=f"{names}: {table.caption}", shown_columns=columns)


def _refuse_twice(results: list[Results]) -> None:
    """Refuse two folders of one machine: their runs and loads would be counted as repeats."""
    folders: dict[str, Path] = {}
    for each in results:
        runs = _join([each], tidy.read_runs, "runs.csv")
        loading = _join([each], tidy.read_loading, "loading.csv")
        for machine in sorted({*runs.get("machine", ()), *loading.get("machine", ())}):
            if machine in folders:
                raise StudyError(
                    f"{folders[machine]} and {each.folder} are both of machine {machine}; give each machine's once, or "
                    "give each a label: old=FOLDER new=FOLDER"
                )
            folders[machine] = each.folder


def _refuse_copies(runs: pd.DataFrame) -> None:
    """Refuse results whose runs are all the same: a copy of a folder has no second measurement."""
    copies = list(likeness.find_copied_runs(runs)) if len(runs) else []
    copied = {record for records in copies for record in records}
    for machine, own in runs.groupby("machine") if copies else ():
        if set(own["record"]) <= copied:
            one, other = copies[0][:2]
            raise StudyError(
                f"all {format_count(len(own), 'run')} of {machine} are also in the other results ({one} and {other} "
                "are one run): a copy compared with itself; give results of runs that were made separately"
            )


def _join(results: list[Results], read: Callable[[Path], pd.DataFrame], name: str) -> pd.DataFrame:
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
    return stack_tables(frames)


def _format_hosts(runs: pd.DataFrame, machine: str) -> str:
    """The hosts of a machine's runs in brackets; empty where they were not recorded."""
    if not {"machine", "hosts"} <= set(runs):
        return ""
    named = runs.loc[runs["machine"] == machine, "hosts"].dropna().str.split()
    hosts = sorted(set(named.explode().dropna()))
    return f" ({', '.join(hosts)})" if hosts else ""


def _list_common_tables(results: list[Results]) -> list[str]:
    """The tables that every machine has, except those that compare runs of one machine.

    A version that was put aside has no tables of its own.
    """
    folders = [each.folder for each in results]
    of_tables = [folder / "tables" for folder in folders if (folder / "tables").is_dir()]
    if not of_tables:
        return []
    in_all = set.intersection(*({path.stem for path in folder.glob("*.csv")} for folder in of_tables))
    tables = [name for name in TABLES if name in in_all and not TABLES[name].compares_runs]
    if not tables:
        raise StudyError(f"{' and '.join(map(str, folders))} have no table in common; run the same study on each")
    return tables


def compare_machines(runs: pd.DataFrame, base: str) -> Table:
    """The ratio of each ``machine`` to ``base`` at each point that both have. runs: the tidy table of all of them."""
    rows: list[dict[str, Any]] = []
    twice = {record for records in likeness.find_copied_runs(runs) for record in records}
    runs = steady(runs[~runs["record"].isin(twice)] if twice else runs)
    for point, group in select_runs(runs, gives_timings).groupby(KEYS, sort=False, dropna=False):
        arms = dict(list(group.groupby("machine", sort=False)))
        for name, other in arms.items():
            if name != base and base in arms:
                for quantity in QUANTITIES:
                    key = {"machine": name, **dict(zip(KEYS, point, strict=True)), "quantity": quantity}
                    compared = _ratio(other, arms[base], quantity)
                    rows += [key | compared] if compared else []
    columns = load_verb_table("comparison")["columns"]
    frame = pd.DataFrame(rows, columns=None if rows else [*columns, "records"])
    identity = ("machine", *KEYS, "quantity")
    copies = (
        [f"{format_count(len(twice), 'record')} left out: copies of the same runs are in both results"] if twice else []
    )
    unproven = [f"left out: {why}"] if (why := failed_runs.describe_unproven(runs)) else []
    remarks = [*copies, *unproven, *notes(frame, share_runs=True)]
    return make_verb_table("comparison", frame, remarks, identity, base=base)


def _ratio(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> dict[str, Any] | None:
    """The columns of a ratio; None if one of the two has no value."""
    failed = [int((runs["status"] != "ok").sum()) for runs in (one, other)]
    ratio, (one, other) = compare_results(one, other, quantity)
    if one.empty or other.empty:
        return None
    both = pd.concat([one, other])
    return {
        "repeats": len(one),
        "base_repeats": len(other),
        **ratio.to_columns("ratio"),
        "how": ratio.pairing,
        "differs": ", ".join(likeness.list_differences(one, other)) or None,
        "why_not": ratio.why_not,
        "blocks_unlike": ratio.unlike,
        "blocks_alike": ratio.alike,
        "repeats_failed": failed[0],
        "base_failed": failed[1],
        "oversubscribed": bool(both["oversubscribed"].any()),
        "code_is_current": bool(both["code_is_current"].all()),
        "records": join_records(both["record"]),
    }
