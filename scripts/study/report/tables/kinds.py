"""The registry of tables: how each is made, from which runs, and what a study needs to have for it."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from study.compare import failed_runs
from study.core.registry import Registry
from study.experiment.parameters import PARAMETERS, is_observed
from study.experiment.study import Study
from study.records import own_keys
from study.records.names import runs_of, split_records
from study.report.tables.layout import Table

Make = Callable[[pd.DataFrame, pd.DataFrame], Table]
Uses = Callable[[Any], bool]  # whether a table uses a run, planned or a row of runs.csv: ``run[key]`` is a key's value

OBSERVING = ", ".join(name for name, parameter in PARAMETERS.items() if parameter.observes)
NEEDS_TIMINGS = f"runs that give timings, so without {OBSERVING}"


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Args:
        title: what it shows.
        look_for: what to look for in it.
        needs: what a study must have for it, in words.
        uses: which runs it is made from, and no others.
        uses_loading: whether it is made from the loading measurements.
        is_there: whether a study has what it needs.
        compares_runs: whether it compares runs of one machine; then several machines cannot share one table.
        reads_further: whether it also shows the study's ``further_results``, runs of other machines.
        reads_targets: whether it uses the columns of `study.records.targets`.
        verdicts: columns with verdicts, which repeats that are added later do not change (`first_verdicts`).
        make: from the tidy tables (runs, loading) to the table; other runs in them are left out.
    """

    title: str
    look_for: str
    needs: str
    uses: Uses
    is_there: Callable[[Study], bool]
    make: Make
    uses_loading: bool = False
    compares_runs: bool = False
    reads_further: bool = False
    reads_targets: bool = False
    verdicts: tuple[str, ...] = ()


DISTURBED = "runs_disturbed: other processes or limits used the hosts meanwhile; runs.csv says which (disturbed_by)"

TABLES: Registry[Kind] = Registry("table")


def no_run(run: Any) -> bool:
    """For a table that is made from no run."""
    return False


def any_run(run: Any) -> bool:
    """For a table that is made from all runs."""
    return True


def table(
    name: str, uses: Uses = no_run, is_there: Callable[[Study], bool] | None = None, **others: Any
) -> Callable[[Make], Make]:
    """Register the decorated function as the `Kind` of table ``name``.

    The function gets the runs that ``uses`` selects, whatever other runs there are: a table that is made alone is the
    same as one of the whole study. is_there: by default, whether a study has a run or a measurement that it uses.
    others: of the `Kind`.
    """

    def has_any(study: Study) -> bool:
        return any(map(uses, study.runs)) or (others.get("uses_loading", False) and bool(study.loading))

    def register(make: Make) -> Make:
        @functools.wraps(make)
        def make_of_used(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
            return with_unproven(with_disturbed(make(select_runs(runs, uses), loading), runs), runs)

        TABLES.add(name, Kind(uses=uses, is_there=is_there or has_any, make=make_of_used, **others))
        return make_of_used

    return register


def with_disturbed(made: Table, runs: pd.DataFrame) -> Table:
    """A table with the number of disturbed runs behind each row; a column that is shown if there are any."""
    if "records" not in made.frame or "disturbed" not in runs:
        return made
    disturbed = runs.set_index("record")["disturbed"].dropna().astype(bool)
    of_row = [disturbed[disturbed.index.isin(split_records(text))] for text in made.frame["records"].fillna("")]
    counts = pd.array([int(each.sum()) if len(each) else pd.NA for each in of_row], dtype="Int64")
    notes = [*made.notes, DISTURBED] if any(each.any() for each in of_row) else made.notes
    return dataclasses.replace(
        made, frame=made.frame.assign(runs_disturbed=counts), shown_columns=[*made.shown_columns, "runs_disturbed"],
        optional=(*made.optional, "runs_disturbed"), notes=notes,
    )  # fmt: skip


def with_unproven(made: Table, runs: pd.DataFrame) -> Table:
    """A table with the number of unproven runs behind each row, and the mean runtime of a row that has no others."""
    if "records" not in made.frame or not failed_runs.mark_unproven(runs).any():
        return made
    of_row = [runs_of(runs, text) for text in made.frame["records"].fillna("")]
    counts = pd.array([int(failed_runs.mark_unproven(each).sum()) for each in of_row], dtype="Int64")
    frame = made.frame.assign(runs_unproven=counts)
    if "runtime_s" in frame:
        times = [each.loc[failed_runs.mark_unproven(each), "runtime_s"].mean() for each in of_row]
        frame["runtime_s"] = frame["runtime_s"].astype(float).fillna(pd.Series(times, frame.index, dtype=float))
    notes = made.notes
    if counts.sum():
        why = failed_runs.describe_unproven(pd.concat(of_row).drop_duplicates("record"))
        notes = [*notes, f"{why}: in no mean but the runtime of a row without others"]
    return dataclasses.replace(
        made, frame=frame, shown_columns=[*made.shown_columns, "runs_unproven"],
        optional=(*made.optional, "runs_unproven"), notes=notes,
    )  # fmt: skip


def with_own_keys(made: Table, runs: pd.DataFrame) -> Table:
    """A table as it is written: of a command without the grid keys that it does not have.

    A key that no row has loses its column; where some rows have it, the cells of the others are empty, and the column
    ``keys_reason`` and a note say why. runs: the tidy table of runs from which it is made.
    """
    lacking = own_keys.list_lacking_columns(runs)
    frame, is_partial = own_keys.drop_lacking_keys(made.frame, lacking)
    if not is_partial:
        return dataclasses.replace(made, frame=frame)
    whys = [own_keys.WHY if lacking.get(str(name)) else None for name in frame["benchmark"]]
    notes = [*made.notes, f"{own_keys.REASON}: {own_keys.WHY}"]
    return dataclasses.replace(made, frame=frame.assign(**{own_keys.REASON: whys}), notes=notes)


def select_runs(runs: pd.DataFrame, uses: Uses) -> pd.DataFrame:
    """The rows of a tidy table of runs that a table uses."""
    return runs if runs.empty else runs[[uses(_Row(runs, place)) for place in range(len(runs))]]


class _Row(Mapping[str, Any]):
    """A row of a tidy table. Of its hundreds of columns, `select_runs` reads a few."""

    def __init__(self, table: pd.DataFrame, place: int) -> None:
        self._table, self._place = table, place

    def __getitem__(self, name: str) -> Any:
        value = self._table[name].iat[self._place]
        return value.item() if isinstance(value, np.generic) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.columns)

    def __len__(self) -> int:
        return len(self._table.columns)


def gives_timings(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings: it is observed by no key."""
    return is_observed(run, None)
