"""The registry of tables: how each is made, and what a study needs to have for it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pandas as pd

from study.core.registry import Registry
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.report.tables.layout import Table

Make = Callable[[pd.DataFrame, pd.DataFrame], Table]


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Args:
        title: what it shows.
        look_for: what to look for in it.
        needs: what a study must have for it, in words.
        is_there: whether a study has it.
        compares_runs: whether it compares runs of one machine; then several machines cannot share one table.
        make: from the tidy tables (runs, loading) to the table.
    """

    title: str
    look_for: str
    needs: str
    is_there: Callable[[Study], bool]
    compares_runs: bool
    make: Make


TABLES: Registry[Kind] = Registry("table")


def table(
    name: str,
    title: str,
    look_for: str,
    needs: str,
    is_there: Callable[[Study], bool],
    compares_runs: bool = False,
) -> Callable[[Make], Make]:
    """Register the decorated function as the `Kind` of table ``name``."""

    def register(make: Make) -> Make:
        TABLES.add(name, Kind(title, look_for, needs, is_there, compares_runs, make))
        return make

    return register


def runs(
    scaling: str | None = None, loaders: Collection[str] | None = None, observed: str | None = None
) -> Callable[[Study], bool]:
    """Whether a study has such runs. observed: a key such as ``trace``; by default only runs that give timings."""

    def is_there(study: Study) -> bool:
        return any(
            is_observed(run, observed)
            and (scaling is None or run["scaling"] == scaling)
            and (loaders is None or run["loader"] in loaders)
            for run in study.runs
        )

    return is_there
