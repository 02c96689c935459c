"""What the page has of the study's files: links to runs and files, and the bounded parts that are embedded in it."""

import base64
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

UP = "../../"  # from the study's folder, where the report is, to the machine's
CELLS = 60_000  # of all tables; a cell takes about 40 bytes
CSV_BYTES = 800_000
FIGURE_BYTES = 2_500_000  # a figure takes a third more in the page


@dataclass(frozen=True)
class Link:
    """A link. text: what a reader sees. href: relative to the report, or a place in it."""

    text: str
    href: str


class RecordLinks:
    """Links to the study's records: runs and loading measurements, numbered as in the report's lists."""

    def __init__(self, runs: pd.DataFrame, loading: pd.DataFrame) -> None:
        """runs, loading: the tidy tables."""
        self.runs = list(dict.fromkeys(runs["record"])) if len(runs) else []
        self.loading = list(dict.fromkeys(loading["record"])) if len(loading) else []
        self._links = {record: Link(f"run {n}", f"#run-{n}") for n, record in enumerate(self.runs, 1)}
        self._links |= {record: Link(f"load {n}", f"#load-{n}") for n, record in enumerate(self.loading, 1)}

    def make_link(self, record: str) -> Link:
        """Link to a record's entry in the report; to its file if it has none, such as one of another machine."""
        return self._links.get(record) or Link(record, to_address(record))

    def make_file_links(self, record: str) -> list[Link]:
        """Link to a record's file, from its entry in the report."""
        return [Link(self.make_link(record).text, to_address(record))]

    def make_links(self, records: Iterable[str]) -> list[Link]:
        """Link to several records, as `make_link`."""
        return [self.make_link(record) for record in records]

    def make_cell_links(self, cell: Any) -> list[Link]:
        """Link to the records in a cell of a column ``records``: names with ``; `` between them, or nothing."""
        return self.make_links(cell.split("; ")) if isinstance(cell, str) and cell else []


def to_address(path: str | Path) -> str:
    """Return the address of a file in the machine's results folder, relative to the report."""
    return UP + quote_path(path)


def quote_path(path: str | Path) -> str:
    """Quote a relative path as an address."""
    return urllib.parse.quote(Path(path).as_posix(), safe="/+~=,")


class Embedding:
    """The parts of the study's files that are embedded in the page, within bounds; the rest is only linked."""

    def __init__(self, folder: Path, tables: int) -> None:
        """folder: the study's folder, in which the page is. tables: how many share the cells."""
        self.folder = folder
        self._cells = CELLS // max(tables, 1)
        self._left = {"text/csv": CSV_BYTES, "image/svg+xml": FIGURE_BYTES}

    def select_part(self, rows: int, shown: int, columns: Sequence[str]) -> tuple[list[str], int]:
        """Select (columns, number of rows) of a table that are embedded in the page.

        shown: how many of the columns a reader sees first. Columns are left out before rows.
        """
        if rows * len(columns) <= self._cells:
            return [*columns], rows
        most_columns = max(self._cells // max(rows, 1), shown, 1)
        return [*columns[:most_columns]], min(rows, max(self._cells // most_columns, 1))

    def make_link(self, path: Path) -> Link:
        """Link to a file of the study's folder."""
        return Link(path.name, quote_path(path.relative_to(self.folder)))

    def embed_csv(self, path: Path) -> str:
        """Embed a CSV file as a data URI; empty if there is no space left for it."""
        return self._embed(path, "text/csv")

    def embed_figure(self, path: Path) -> str:
        """Embed an SVG file as a data URI, in which scripts do not run; empty if there is no space left for it."""
        return self._embed(path, "image/svg+xml")

    def _embed(self, path: Path, kind: str) -> str:
        """Embed a file of a media type as a data URI; empty if there is no space left for it."""
        content = path.read_bytes()
        if len(content) > self._left[kind]:
            return ""
        self._left[kind] -= len(content)
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"
