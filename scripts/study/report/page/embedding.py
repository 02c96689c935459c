"""How much goes into the page: its size is bounded, whatever the size of the study."""

import base64
from collections.abc import Sequence
from pathlib import Path

from study.report.page.links import Link, quoted

CELLS = 60_000  # of all tables; a cell takes about 40 bytes
CSV_BYTES = 800_000
FIGURE_BYTES = 2_500_000  # a figure takes a third more in the page


class Embedding:
    """What the page may have of the study's files; the rest is only linked."""

    def __init__(self, folder: Path, tables: int) -> None:
        """folder: the study's folder, in which the page is. tables: how many share the cells."""
        self.folder = folder
        self._cells = CELLS // max(tables, 1)
        self._left = {"text/csv": CSV_BYTES, "image/svg+xml": FIGURE_BYTES}

    def part(self, rows: int, shown: int, columns: Sequence[str]) -> tuple[list[str], int]:
        """(columns, number of rows) of a table that are in the page.

        shown: how many of the columns a reader sees first. Columns are left out before rows.
        """
        if rows * len(columns) <= self._cells:
            return [*columns], rows
        most_columns = max(self._cells // max(rows, 1), shown, 1)
        return [*columns[:most_columns]], min(rows, max(self._cells // most_columns, 1))

    def link(self, path: Path) -> Link:
        """To a file of the study's folder."""
        return Link(path.name, quoted(path.relative_to(self.folder)))

    def csv(self, path: Path) -> str:
        """A CSV file as a data URI; empty if there is no space left for it."""
        return self._data(path, "text/csv")

    def figure(self, path: Path) -> str:
        """An SVG file as a data URI, in which scripts do not run; empty if there is no space left for it."""
        return self._data(path, "image/svg+xml")

    def _data(self, path: Path, kind: str) -> str:
        content = path.read_bytes()
        if len(content) > self._left[kind]:
            return ""
        self._left[kind] -= len(content)
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"
