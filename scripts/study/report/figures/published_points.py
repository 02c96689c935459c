"""The published values that a figure draws, from the papers' CSV files."""

from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.report.figures.description import Description, to_list
from study.report.tables.published_values import read_published

MACHINE = "machine"  # the column that says where a value was measured


def check_published(description: Description) -> None:
    """Raise `StudyError`, as `select_published_rows`, for the first published values that the figure cannot draw."""
    for panel in description.panels:
        for entry in panel.get("published", []):
            select_published_rows(entry, description)


def select_published_rows(entry: dict[str, Any], description: Description) -> pd.DataFrame:
    """Select the rows that an entry of a panel's `read_published` names, sorted along the horizontal axis.

    Raises `StudyError` if there is no such file or column, if what is drawn is no number, or if no row fits.
    """
    x = description.x.column
    where = f"figure {description.name}: published: {entry['file']}"
    known_files = sorted(path.name for path in CONFIG.glob("papers/*/*.csv"))
    if entry["file"] not in known_files:
        raise StudyError(f"{where}: there is no such file in config/papers; known files: {', '.join(known_files)}")
    rows = read_published(entry["file"]).assign(**entry.get("set", {}))
    for column in (MACHINE, x, entry["y"], *entry.get("where", {})):
        if column not in rows:
            raise StudyError(f"{where}: there is no column '{column}'; the file has: {', '.join(rows)}")
    for column in (entry["y"], *([] if description.x.names else [x])):
        if not is_numeric_dtype(rows[column]):
            raise StudyError(f"{where}: column '{column}' does not hold numbers; choose one that does")
    for column, value in entry.get("where", {}).items():
        rows = rows[rows[column].isin(to_list(value))]
    rows = rows.dropna(subset=[x, entry["y"]]).sort_values(x)
    if rows.empty:
        raise StudyError(f"{where}: no row fits {entry.get('where', {})}")
    return rows
