"""Values of keys as written in a cell: ``gpus=32;storage=nvme``."""

from typing import Any

import pandas as pd


def values(text: str | None) -> dict[str, Any]:
    """``gpus=32;storage=nvme`` as a dict; whole numbers are numbers."""
    parts = [part.split("=") for part in (text or "").split(";") if part]
    return {name: int(value) if value.isdigit() else value for name, value in parts}


def selected(table: pd.DataFrame, wanted: dict[str, Any]) -> pd.DataFrame:
    """The rows with these values; none if a column is missing."""
    for name, value in wanted.items():
        if name not in table:
            return table.iloc[:0]
        table = table[table[name] == value]
    return table
