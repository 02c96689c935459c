"""The formulas of claims: from the numbers of two sets of runs, or of two published points, to the claim's number."""

from typing import TypeVar

import pandas as pd

Numbers = TypeVar("Numbers", float, pd.Series)


def of_ratio(form: str, ratio: Numbers, ranks: float = 1) -> Numbers:
    """The claim's number from one / other. ranks: ranks of one / ranks of other, for ``efficiency``."""
    of_forms: dict[str, Numbers] = {
        "ratio": ratio,
        "change_pct": 100 * (ratio - 1),
        "difference_pct": 100 * (ratio - 1),
        "loss_pct": 100 * (1 - ratio),
        "efficiency": ratio / ranks,
    }
    return of_forms[form]


def of_two(form: str, one: pd.Series, other: pd.Series) -> pd.Series:
    """The claim's number of each pair of points; ``value`` is the first one's."""
    if form == "value":
        return one
    return one - other if form == "difference" else of_ratio(form, one / other)
