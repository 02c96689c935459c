"""Links from the report to the runs behind its numbers."""

import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

UP = "../../"  # from the study's folder, where the report is, to the machine's


@dataclass(frozen=True)
class Link:
    """text: what a reader sees. href: relative to the report, or a place in it."""

    text: str
    href: str


class Records:
    """The study's records: runs and loading measurements, each with its number in the report's lists."""

    def __init__(self, runs: pd.DataFrame, loading: pd.DataFrame) -> None:
        """runs, loading: the tidy tables."""
        self.runs = list(dict.fromkeys(runs["record"])) if len(runs) else []
        self.loading = list(dict.fromkeys(loading["record"])) if len(loading) else []
        self._links = {record: Link(f"run {n}", f"#run-{n}") for n, record in enumerate(self.runs, 1)}
        self._links |= {record: Link(f"load {n}", f"#load-{n}") for n, record in enumerate(self.loading, 1)}

    def link(self, record: str) -> Link:
        """To a record's entry in the report; to its file if it has none, such as one of another machine."""
        return self._links.get(record) or Link(record, to_file(record))

    def to_record(self, record: str) -> list[Link]:
        """To a record's file, from its entry in the report."""
        return [Link(self.link(record).text, to_file(record))]

    def links(self, records: Iterable[str]) -> list[Link]:
        """`link` for several."""
        return [self.link(record) for record in records]

    def of_cell(self, cell: Any) -> list[Link]:
        """For a cell of a column ``records``: names with ``; `` between them, or nothing."""
        return self.links(cell.split("; ")) if isinstance(cell, str) and cell else []


def to_file(path: str | Path) -> str:
    """The address of a file in the machine's results folder, from the report."""
    return UP + quoted(path)


def quoted(path: str | Path) -> str:
    """A relative path as an address."""
    return urllib.parse.quote(Path(path).as_posix(), safe="/+~=,")
