"""Points of a table compared with others, paired within blocks, as ``comparisons`` in a table's declaration say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from study.compare import estimates
from study.compare.estimates import Estimate
from study.core.statistics import ERROR_PER_SIDE, subtract
from study.records.names import runs_of
from study.report.tables.summary import like

HIGHER, LOWER, NO_DIFFERENCE = "higher", "lower", "no difference shown"
# {form: the number of a ratio one / other}; of two sets of runs, a point and its base.
OF_RATIO: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("ratio", "growth"), lambda ratio: ratio),
    **dict.fromkeys(("change_pct", "difference_pct", "growth_pct"), lambda ratio: 100 * subtract(ratio, 1.0)),
    "loss_pct": lambda ratio: 100 * subtract(1.0, ratio),
    "speedup": lambda ratio: 1 / ratio,
}


def add_comparisons(declaration: Mapping[str, Any], table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns of the declared comparisons, ``pairing``, ``blocks_unlike`` and ``blocks_alike``.

    A row without a base has none of them. Of several comparisons, the first that a row has gives its pairing.
    """
    comparisons = declaration["comparisons"]
    numbers = [f"{name}{end}" for each in comparisons for name in each["columns"] for end in ("", "_low", "_high")]
    verdicts = [name for each in comparisons for name in each.get("verdicts", ())]
    names = [*numbers, *verdicts, "pairing", "blocks_unlike", "blocks_alike"]
    rows = []
    for _, row in table.iterrows():
        values: dict[str, Any] = dict.fromkeys(names)
        ratios: dict[str, Estimate] = {}
        for each in comparisons:
            ratios |= _compare_row(each, row, table, runs, values)
        firsts = [next(iter(each["columns"])) for each in comparisons]
        for first in (ratios[name] for name in firsts if name in ratios):
            values["pairing"] = values["pairing"] or first.pairing
            values["blocks_unlike"] = values["blocks_unlike"] or first.unlike
        rows.append(values | {"blocks_alike": estimates.describe_fewer_blocks(ratios)})
    added = pd.DataFrame(rows, index=table.index, columns=names)
    return table.join(added.astype(dict.fromkeys(numbers, float)))


def _compare_row(
    comparison: Mapping[str, Any], row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame, values: dict[str, Any]
) -> dict[str, Estimate]:
    """Fill ``values`` with what the comparison of a row with its base gives; returns its ratios by their columns."""
    alike = like(table, row, comparison["free"])
    for name in comparison.get("same", ()):
        alike = alike[alike[name] == row[name]]
    is_base = pd.Series([fits(each, comparison["to"]) for _, each in alike.iterrows()], alike.index, dtype=bool)
    if fits(row, comparison["to"]) or not fits(row, comparison.get("of", {})) or not is_base.any():
        return {}
    bases = alike[is_base]
    nearest = bases[bases[comparison["nearest"]] == row[comparison["nearest"]]] if "nearest" in comparison else bases
    base = (bases if nearest.empty else nearest).iloc[0]
    own, other = (runs_of(runs, each["records"]) for each in (row, base))
    # Bonferroni: a verdict holds for all points with the same base together.
    error = ERROR_PER_SIDE / (~is_base).sum() if "verdicts" in comparison else ERROR_PER_SIDE
    ratios = {}
    for column, ((form, measure),) in ((name, each.items()) for name, each in comparison["columns"].items()):
        if form == "difference":
            estimate = estimates.estimate_difference(own, other, measure, error)
        else:
            estimate = ratios[column] = estimates.estimate_ratio(own, other, measure).convert(OF_RATIO[form])
        values |= estimate.to_columns(column)
        for verdict in (name for name, of in comparison.get("verdicts", {}).items() if of == column):
            sides = {1: HIGHER, 0: NO_DIFFERENCE, -1: LOWER}
            values[verdict] = sides[estimate.find_side(0, 0)] if pd.notna(estimate.low) else None
    return ratios


def fits(row: Any, conditions: Mapping[str, Any]) -> bool:
    """Whether a run, planned or of a table, or a row has these values: one, one of a list, above one, or not one."""
    return all(_fits_value(row[column], wanted) for column, wanted in conditions.items())


def _fits_value(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return value in wanted
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    return bool(value > wanted["above"] if "above" in wanted else value != wanted["not"])
