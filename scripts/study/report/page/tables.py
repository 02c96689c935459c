"""Tables of the report: columns, those that a reader sees first, and the text of each cell."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import fields, units
from study.core.csv_files import read_csv
from study.core.files import read_text
from study.experiment.parameters import PARAMETERS
from study.report.page.links import Embedding, Link, RecordLinks
from study.report.tables.layout import ci95_name, limits, text

Links = Callable[[Any], list[Link]]
RECORDS = ("records", "record")  # columns that name run records
_SIDES = {"_low": ", low", "_high": ", high"}  # of an interval; they follow the unit
_HALF_WIDTH = "_ci95"
# What a caption explains: after a sentence, ``speedup: `` or ``low, high: ``, in lower case.
TERM = re.compile(r"(?:^|(?<=[.] ))([a-z][a-z0-9_]*(?:, [a-z][a-z0-9_]*)*): ")


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its name in words, its unit and meaning (both may be empty)."""

    name: str
    words: str
    unit: str
    meaning: str
    is_number: bool
    is_shown: bool


@dataclass(frozen=True)
class Cell:
    """A cell's text, and the number to sort it by, which is empty for a text and a missing number.

    The page's script looks at the first row: if a number there has nothing to sort by, all are sorted as texts.
    """

    text: str
    order: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Row:
    """A row, with links to the runs behind it."""

    cells: list[Cell]
    runs: list[Link]
    key: str = ""  # its id in the page


@dataclass(frozen=True)
class View:
    """A table of the report.

    Args:
        key: its id in the page.
        title: its heading.
        caption: what its columns are.
        columns: those in the page; not all are shown at first.
        rows: those in the page.
        same: (words, value) of columns that say the same in every row and are not shown at first.
        cut: what is not in the page, in words; empty if all is.
        look_for: what to look for.
        notes: remarks about rows.
        csv: the file with every row and column.
    """

    key: str
    title: str
    caption: str
    columns: list[Column]
    rows: list[Row]
    same: list[tuple[str, str]] = field(default_factory=list)
    cut: str = ""
    look_for: str = ""
    notes: list[str] = field(default_factory=list)
    csv: Link | None = None
    download: str = ""

    @property
    def caption_text(self) -> str:
        """The sentences of the caption before its first term."""
        return TERM.split(self.caption, maxsplit=1)[0].strip()

    @property
    def terms(self) -> list[tuple[str, str]]:
        """(term, meaning) of what the caption explains, such as ``speedup: ...``, each in sentences of its own."""
        _, *rest = TERM.split(self.caption)
        return [(term, meaning.strip()) for term, meaning in zip(rest[::2], rest[1::2], strict=True)]

    @property
    def has_runs(self) -> bool:
        """True if some row has links to runs."""
        return any(row.runs for row in self.rows)


@dataclass(frozen=True)
class MarkdownTexts:
    """Texts of a table's Markdown form: its caption, the columns shown, and notes."""

    caption: str
    shown_columns: list[str]
    notes: list[str]

    @classmethod
    def read(cls, markdown: Path) -> MarkdownTexts:
        """Read what `study.report.tables.layout.Table.markdown` wrote; the caption without the study's name."""
        lines = read_text(markdown).splitlines()
        heads = [line for line in lines if line.startswith("|")][:1]
        columns = [name.strip() for line in heads for name in line.strip("|").split("|")]
        caption = re.sub(r"^\*\*.*?\*\*: (study \w+: )?", "", lines[0]) if lines else ""
        return cls(caption, columns, [line.removeprefix("- ") for line in lines if line.startswith("- ")])


def read_view(folder: Path, name: str, title: str, look_for: str, records: RecordLinks, space: Embedding,
               key: str = "") -> View:  # fmt: skip
    """Read the `View` of a table in ``folder`` from its CSV and its Markdown form.

    space: how much of it the page may have. key: its id in the page, ``table-NAME`` if there is none.
    """
    csv, texts = folder / f"{name}.csv", MarkdownTexts.read(folder / f"{name}.md")
    frame = read_csv(csv).convert_dtypes()
    view = make_view(
        frame, key or f"table-{name}", title, records.make_cell_links, space, texts.shown_columns, texts.caption
    )
    return View(view.key, title, texts.caption, view.columns, view.rows, view.same, view.cut, look_for, texts.notes,
                space.make_link(csv), space.embed_csv(csv))  # fmt: skip


def make_view(
    frame: pd.DataFrame,
    key: str,
    title: str,
    links: Links,
    space: Embedding,
    shown_columns: Collection[str] = (),
    caption: str = "",
    keys: Iterable[str] = (),
) -> View:
    """Make the `View` of a data frame.

    links: for a cell of a column of records. shown_columns: those for people, all if there are none; those that are
    empty or say the same in every row are not shown at first. keys: an id for each row.
    """
    in_others = {ci95_name(name) for name in frame}  # half-widths, which stand beside their means
    names = [name for name in frame if name not in RECORDS and name not in in_others]
    wanted = [name for name in shown_columns if name in names] or names
    distinguishing = [name for name in wanted if _is_distinguishing(frame[name])]
    first = [*wanted, *(name for name in names if name not in wanted)]
    embedded, rows = space.select_part(len(frame), len(distinguishing), first)
    columns = [_describe_column(frame, name, name in distinguishing) for name in embedded]
    constant = [each for each in columns if each.name in wanted and not each.is_shown and _is_filled(frame[each.name])]
    same = [(column.words, text(frame[column.name].iloc[0])) for column in constant]
    cells = zip(*(_make_cells(frame, column, rows) for column in columns), strict=True)
    ids = [*keys] or [""] * len(frame)
    made_rows = [
        Row([*row], runs, key) for row, runs, key in zip(cells, _make_run_links(frame, rows, links), ids, strict=False)
    ]
    return View(key, title, caption, columns, made_rows, same, _describe_cut(frame, len(names), len(embedded), rows))


def _is_distinguishing(column: pd.Series) -> bool:
    """True if a column's values differ between rows or, for a single row, if it is filled."""
    return _is_filled(column) and (len(column) == 1 or column.nunique(dropna=False) > 1)


def _is_filled(column: pd.Series) -> bool:
    """True if a column has a value."""
    return bool(column.notna().any())


def _describe_column(frame: pd.DataFrame, name: str, is_shown: bool) -> Column:
    """Describe a column: heading, unit and meaning."""
    words, unit = make_heading(name)
    return Column(name, words, unit, get_meaning(name), _is_number(frame[name]), is_shown)


def make_heading(column: str) -> tuple[str, str]:
    """A column's name in words and its unit, for the head of a table: ``("train", "MB")`` for ``train_mb``."""
    side = next((end for end in _SIDES if column.endswith(end) and units.find_unit(column.removesuffix(end))), "")
    words, unit = units.split_unit(column.removesuffix(side).replace("_mb_per_step", "_per_step_mb"))
    half = " ± (95 %)" if words.endswith(_HALF_WIDTH) else ""
    return words.removesuffix(_HALF_WIDTH).replace("_", " ") + half + _SIDES.get(side, ""), unit or ""


def get_meaning(name: str) -> str:
    """Return a column's meaning, if it is a grid key or a column of ``runs.csv``; else empty."""
    if name in PARAMETERS:
        return PARAMETERS[name].meaning
    declared = fields.list_columns().get(name)
    return declared.text if declared else ""


def _is_number(column: pd.Series) -> bool:
    """True for numbers, False for texts and flags."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _make_cells(frame: pd.DataFrame, column: Column, rows: int) -> list[Cell]:
    """Make the first ``rows`` cells of a column; ``mean ± half-width`` with an interval, sorted by the mean."""
    values, half = frame[column.name].iloc[:rows], ci95_name(column.name)
    if not column.is_number:
        return [Cell(text(value)) for value in values]
    intervals = frame[half].iloc[:rows] if half in frame else [None] * rows
    compared = limits(frame, column.name)[:rows]
    return [_make_number_cell(*each) for each in zip(values, intervals, compared, strict=True)]


def _make_number_cell(value: Any, interval: Any, compared: Iterable[float]) -> Cell:
    """Make the cell of a number with the half-width of its interval, if any. compared: limits it is judged by."""
    if pd.isna(value):
        return Cell(text(value), is_number=True)
    said = text(value, limits=compared) if pd.isna(interval) else f"{text(value)} ± {text(interval, 2)}"
    order = value if math.isfinite(value) else math.copysign(sys.float_info.max, value)  # "inf" would be a text
    return Cell(said, f"{order:.9g}" if math.isfinite(value) else repr(order), is_number=True)


def _make_run_links(frame: pd.DataFrame, rows: int, links: Links) -> list[list[Link]]:
    """Make the links of the first ``rows`` rows to their runs."""
    column = next((frame[name] for name in RECORDS if name in frame), None)
    return [[]] * rows if column is None else [links(cell) for cell in column.iloc[:rows]]


def _describe_cut(frame: pd.DataFrame, columns: int, kept: int, rows: int) -> str:
    """Describe what of a table is not in the page; empty if all is."""
    parts = [f"the first {rows} of {len(frame)} rows"] if rows < len(frame) else []
    parts += [f"{kept} of {columns} columns"] if kept < columns else []
    return " and ".join(parts)
