"""Grid keys that a command does not have: what is written leaves them empty, with the reason; readers fill them in.

A record has all grid keys, whose values are compared and grouped alike for all runs. Of a command most of them say
nothing, see `study.experiment.applicability`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from study.experiment import applicability, programs
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.workloads import command

LACKING = "keys_lacking"  # column in memory: the columns to leave empty, separated by blanks; missing if there are none
REASON = "keys_reason"
WHY = "the empty grid keys are neither handed to the program nor obeyed by its launch (docs/commands.md)"
# What stands for the keys without a default of their own, and for what follows from them.
STANDS_FOR: Mapping[str, Any] = {
    **dict.fromkeys(programs.WITHOUT, programs.NOTHING),
    **dict.fromkeys(("batch_size", *applicability.DERIVED), command.ABSENT["batch_size"]),
}
KINDS = {"i": "Int64", "b": "boolean"}  # types of columns that may have empty cells, and keep their other values


def describe_lacking_keys(run: PlannedRun, parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns `LACKING`, of a command, and `REASON`. parameters: of the run's record."""
    if not command.is_command(run.spec):
        return {REASON: None}
    return {REASON: WHY, LACKING: " ".join(sorted(applicability.find_inapplicable_keys(parameters, run.spec)))}


def empty_lacking_keys(runs: pd.DataFrame) -> pd.DataFrame:
    """A tidy table of runs as it is written: without `LACKING`, and without the values of the keys that it names."""
    if LACKING not in runs:
        return runs
    return _empty_cells(runs, [_names(text) for text in runs[LACKING]]).drop(columns=LACKING)


def restore_lacking_keys(runs: pd.DataFrame) -> pd.DataFrame:
    """A table that was written by `empty_lacking_keys`, with what stands for the empty keys, and `LACKING`."""
    if REASON not in runs or runs[REASON].isna().all():
        return runs
    of_commands = runs[REASON].notna()
    keys = [name for name in (*PARAMETERS, *applicability.DERIVED) if name in runs]
    empty = runs[keys].isna().apply(lambda column: column & of_commands)
    filled = {
        name: runs[name].astype(object).mask(empty[name], _stands_for(name)) for name in keys if empty[name].any()
    }
    names = [" ".join(empty.columns[row]) for row in empty.to_numpy(bool)]
    in_one_piece = runs.copy()  # pandas warns of a frame that was put together column by column
    return in_one_piece.assign(
        **filled, **{LACKING: pd.Series(names, runs.index, dtype=object).where(of_commands, None)}
    )


def list_lacking_columns(runs: pd.DataFrame) -> dict[str, set[str]]:
    """{benchmark of a command: the columns that none of its runs has}."""
    if LACKING not in runs:
        return {}
    texts_of = runs[runs[LACKING].notna()].groupby("benchmark")[LACKING]
    return {str(name): set.intersection(*map(_names, texts)) for name, texts in texts_of}


def drop_lacking_keys(rows: pd.DataFrame, lacking: Mapping[str, set[str]]) -> tuple[pd.DataFrame, bool]:
    """(rows without the grid keys that they do not have, whether some cells were emptied).

    A key that no row has loses its column. rows: of any table with a column ``benchmark``. lacking: of
    `list_lacking_columns`.
    """
    if "benchmark" not in rows or not lacking:
        return rows, False
    sets = [lacking.get(str(name), set()) for name in rows["benchmark"]]
    absent = set.intersection(*sets) & set(rows) if sets else set()
    emptied = _empty_cells(rows.drop(columns=list(absent)), sets)
    return emptied, any(name in emptied for names in sets for name in names)


def _empty_cells(rows: pd.DataFrame, sets: list[set[str]]) -> pd.DataFrame:
    """The rows with empty cells in the columns that each row lacks."""
    names = {name for each in sets for name in each if name in rows}
    return rows.assign(**{name: _mask(rows[name], [name in each for each in sets]) for name in sorted(names)})


def _mask(column: pd.Series, where: list[bool]) -> pd.Series:
    return column.astype(KINDS.get(getattr(column.dtype, "kind", ""), column.dtype)).mask(where)


def _names(text: Any) -> set[str]:
    return set(text.split()) if isinstance(text, str) else set()


def _stands_for(name: str) -> Any:
    return STANDS_FOR[name] if name in STANDS_FOR else PARAMETERS[name].default
