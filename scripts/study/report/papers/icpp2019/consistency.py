"""The paper's statements beside what its other numbers give: where they agree, and where they contradict each other."""

import math
import operator
from collections.abc import Callable
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.papers.declaration import load_paper
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import read_published

# What a relation says of (derived, stated). Equal: with the decimals of the statement.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda derived, stated: round(derived, _count_decimals(stated)) == stated,
    ">": operator.gt,
    ">=": operator.ge,
    "<=": operator.le,
}


@table_rows("icpp2019_consistency", is_there=lambda study: True, uses=kinds.no_run)
def consistency(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per statement: its number, the number that other published values give, and whether they agree.

    Runs are not read. ``derived`` follows from the paper's numbers by the row's formula, or is a number given there
    with its place.
    """
    frame = read_published("icpp2019_consistency.csv").rename(columns={"where": "paper_section"})
    paper = load_paper("icpp2019").published
    pairs = zip(frame["formula"], frame["other"], strict=True)
    frame["derived"] = [other if pd.isna(formula) else float(paper.number(formula)) for formula, other in pairs]
    frame["agrees"] = [_agrees(row) for _, row in frame.iterrows()]
    return Rows(frame)


def _agrees(row: pd.Series) -> Any:
    """Whether the derived number fits the statement; None where there is nothing to compare."""
    if pd.isna(row["relation"]):
        return None
    return not math.isnan(row["derived"]) and RELATIONS[row["relation"]](row["derived"], row["stated"])


def _count_decimals(stated: float) -> int:
    return len(f"{stated:g}".partition(".")[2])
