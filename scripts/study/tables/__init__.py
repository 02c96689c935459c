"""The tables: what each is made of, and what a study must have for it."""

from collections.abc import Callable
from dataclasses import dataclass

from study.tables import claims, icpp2019, scaling

BASE_AND_OPTIMIZED = {"read_csv", "chunked"}


@dataclass(frozen=True)
class Kind:
    """A kind of table. make: from the tidy tables (runs, loading) to a `study.tables.layout.Table`.

    needs: what a study must have, in words; there: whether a `study.grid.Study` has it.
    """

    make: Callable
    needs: str
    there: Callable


def _runs(scaling=None, loaders=None):
    def there(study):
        return any(
            (scaling is None or run.parameters["scaling"] == scaling)
            and (loaders is None or run.parameters["loader"] in loaders)
            for run in study.runs
        )

    return there


TABLES = {
    "scaling": Kind(scaling.scaling, "runs", _runs()),
    "icpp2019_table1": Kind(icpp2019.table1, "runs", _runs()),
    "icpp2019_table2": Kind(icpp2019.table2, "strong-scaling runs with read_csv", _runs("strong", {"read_csv"})),
    "icpp2019_table3": Kind(icpp2019.table3, "a loading measurement", lambda study: bool(study.loading)),
    "icpp2019_table5": Kind(
        icpp2019.table5, "strong-scaling runs with read_csv or chunked", _runs("strong", BASE_AND_OPTIMIZED)
    ),
    "icpp2019_table6": Kind(
        icpp2019.table6, "weak-scaling runs with read_csv or chunked", _runs("weak", BASE_AND_OPTIMIZED)
    ),
    "icpp2019_claims": Kind(claims.claims, "runs", _runs()),
}
