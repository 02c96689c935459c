"""How much goes into the page: its size is bounded, whatever the size of the study."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from study.report.page.links import Link, quoted

CELLS = 80_000  # of all tables; a cell takes about 40 bytes
CSV_BYTES = 1_000_000
FIGURE_BYTES = 3_000_000


@dataclass(frozen=True)
class Embedding:
    """What the page may have of each table and figure; the rest stays in the files that it links to.

    folder: the study's folder, in which the page is. tables, figures: how many share the space.
    """

    folder: Path
    tables: int
    figures: int

    def part(self, rows: int, shown: int, columns: Sequence[str]) -> tuple[list[str], int]:
        """(columns, number of rows) of a table that are in the page.

        shown: how many of the columns a reader sees first. Columns are left out before rows.
        """
        cells = CELLS // max(self.tables, 1)
        if rows * len(columns) <= cells:
            return [*columns], rows
        most_columns = max(cells // max(rows, 1), shown, 1)
        return [*columns[:most_columns]], min(rows, max(cells // most_columns, 1))

    def link(self, path: Path) -> Link:
        """To a file of the study's folder."""
        return Link(path.name, quoted(path.relative_to(self.folder)))

    def csv(self, path: Path) -> str:
        """A CSV file as a data URI; empty if it is too large."""
        return self._data(path, "text/csv", CSV_BYTES // max(self.tables, 1))

    def figure(self, path: Path) -> str:
        """An SVG file as a data URI, in which scripts do not run; empty if it is too large."""
        return self._data(path, "image/svg+xml", FIGURE_BYTES // max(self.figures, 1))

    def _data(self, path: Path, kind: str, most: int) -> str:
        if path.stat().st_size > most:
            return ""
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
