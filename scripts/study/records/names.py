"""The column ``records`` of a table: the records behind a row, as one text."""

from collections.abc import Iterable

import pandas as pd

SEPARATOR = "; "


def join_records(records: Iterable[str]) -> str:
    """The distinct records of a row as one text."""
    return SEPARATOR.join(dict.fromkeys(records))


def split_records(text: str) -> list[str]:
    """The records of a row."""
    return text.split(SEPARATOR)


def runs_of(runs: pd.DataFrame, text: str) -> pd.DataFrame:
    """The rows of the tidy table of runs that are behind a row of a table. text: the row's ``records``."""
    return runs[runs["record"].isin(split_records(text))]
