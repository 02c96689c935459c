"""A finished table and its formats: CSV for programs; Markdown, LaTeX and a page of the report for people."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas as pd

from study.core.files import AnyPath, write_with_checksum
from study.core.wording import format_clearly
from study.experiment import programs
from study.experiment.parameters import PARAMETERS
from study.records.names import SEPARATOR, split_records
from study.report import html

NOTHING = "–"
SIGNIFICANT_DIGITS = 4
MOST_DECIMALS = 6  # unless a limit needs more


@dataclass(frozen=True)
class Table:
    """``frame`` has every column, numbers as numbers; the formats for people have ``shown_columns``.

    Shown columns in ``optional`` are left out if they are empty. ``identity``: the columns that identify a row; those
    that are not shown are added if two rows would look the same, or if a grid key is not at its default. A column
    ``records`` names the run records or loading measurements of each row. ``figure``: a figure's path from the table's
    folder, without the ending; the page and Markdown show its .svg, LaTeX its .pdf.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    shown_columns: list[str]
    optional: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    identity: tuple[str, ...] = ()
    figure: str | None = None

    def list_judged_records(self, verdicts: Iterable[str]) -> list[str]:
        """The records behind the rows that have a verdict. verdicts: columns."""
        present = [name for name in verdicts if name in self.frame]
        rows = self.frame[self.frame[present].notna().any(axis=1)] if present else self.frame.iloc[:0]
        return [record for text in rows["records"] for record in split_records(text)] if len(rows) else []

    def write(self, csv: AnyPath, markdown: AnyPath, latex: AnyPath, html: AnyPath) -> None:
        """Write the four files, each whole or not at all."""
        with write_with_checksum(csv) as aside:
            self.frame.to_csv(aside, index=False)
        for path, text in ((markdown, self.markdown()), (latex, self.latex()), (html, self.html())):
            with write_with_checksum(path) as aside:
                aside.write_text(text, encoding="utf-8")

    def write_to(self, folder: Path) -> None:
        """Write the four files into ``folder``, named after the table."""
        self.write(*(folder / f"{self.name}.{form}" for form in ("csv", "md", "tex", "html")))

    def markdown(self) -> str:
        """The table with its caption and notes."""
        cells = self._body().map(_plain_markdown)
        body = cells.to_markdown(index=False, disable_numparse=True, colalign=self._alignment())
        notes = "".join(f"\n- {note}" for note in self.notes)
        curves = f"\n![{self.name}]({self.figure}.svg)\n" if self.figure else ""
        return f"**{self.name}**: {self.caption}\n\n{body}\n{curves}" + (f"{notes}\n" if notes else "")

    def latex(self) -> str:
        """A ``table`` environment for the booktabs package, and one for the figure, for graphicx.

        As `pandas.DataFrame.to_latex` writes it, which imports Matplotlib: half a second in each table's process.
        """
        body = self._body().map(_escape)
        rows = [" & ".join(row) + r" \\" for row in ([_escape(column) for column in body], *body.to_numpy().tolist())]
        caption = _escape(" ".join([self.caption, *(f"{note}." for note in self.notes)]))
        columns = "".join("r" if side == "right" else "l" for side in self._alignment())
        return "\n".join([
            r"\begin{table}", rf"\caption{{{caption}}}", rf"\label{{tab:{self.name}}}",
            rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
            r"\end{tabular}", r"\end{table}", *self._latex_figure(), "",
        ])  # fmt: skip

    def _latex_figure(self) -> list[str]:
        if not self.figure:
            return []
        graphics = rf"\includegraphics[width=\linewidth]{{{self.figure}.pdf}}"
        return [r"\begin{figure}", graphics, rf"\caption{{{_escape(self.name)}}}", r"\end{figure}"]

    def html(self) -> str:
        """A page with the table, its notes, and the records of each row."""
        right = [position for position, side in enumerate(self._alignment()) if side == "right"]
        parts = [html.make_paragraph(self.caption), html.make_table(self._body(), right)]
        parts += [html.make_image(f"{self.figure}.svg", self.name)] if self.figure else []
        parts.append(html.make_list(self.notes))
        if "records" in self.frame:
            records = self.frame["records"].fillna("none").str.replace(SEPARATOR, "\n")
            parts.append(html.make_details("The records behind each row, in order", html.make_list(records, "ol")))
        return html.make_page(self.name, *parts)

    def _body(self) -> pd.DataFrame:
        columns = {column: _text_column(self.frame, column) for column in self._present()}
        return pd.DataFrame(columns, index=self.frame.index)

    def _present(self) -> list[str]:
        columns = [column for column in self.shown_columns if column in self.frame]
        present = [column for column in columns if column not in self.optional or _tells(self.frame[column])]
        present = [column for column in present if not _is_of_commands(self.frame[column])]
        added = self._list_distinguishing(present)
        place = max((index for index, column in enumerate(present) if column in self.identity), default=-1) + 1
        return [*present[:place], *added, *present[place:]]

    def _list_distinguishing(self, present: list[str]) -> list[str]:
        """The identity columns that must be added to ``present``, since two rows would look the same without them."""
        hidden = [column for column in self.identity if column in self.frame and column not in present]
        added = [column for column in hidden if column in PARAMETERS and differs_from_default(self.frame[column])]
        for column in (column for column in hidden if column not in added):
            keys = [name for name in self.identity if name in present] + added
            if self.frame[column].nunique(dropna=False) < 2:
                continue
            alike = self.frame.groupby(keys, dropna=False)[column] if keys else [(None, self.frame[column])]
            if any(values.nunique(dropna=False) > 1 for _, values in alike):
                added.append(column)
        return added

    def _alignment(self) -> list[str]:
        numeric = [pd.api.types.is_numeric_dtype(self.frame[column]) for column in self._present()]
        return ["right" if is_number else "left" for is_number in numeric]


def _tells(column: pd.Series) -> bool:
    """Whether a column has a value other than empty, false and 0 or, for a grid key, its default."""
    if column.name in PARAMETERS and PARAMETERS[str(column.name)].has_default:
        return differs_from_default(column)
    return any(bool(value) for value in column.dropna())


def _is_of_commands(column: pd.Series) -> bool:
    """Whether a column is one that commands do not have, and all rows are of commands."""
    return column.name in programs.WITHOUT and len(column) > 0 and bool(column.eq(programs.NOTHING).all())


def differs_from_default(column: pd.Series) -> bool:
    """Whether a value of a grid key is another than its default. column: named after the key; empty cells are none."""
    parameter = PARAMETERS[str(column.name)]
    return parameter.has_default and any(value != parameter.default for value in column.dropna())


def _text_column(frame: pd.DataFrame, column: str) -> list[str]:
    """Cells as text; ``mean ± half-width`` if the column has a confidence interval."""
    interval = ci95_name(column)
    if interval not in frame:
        return [
            text(value, limits=cell_limits)
            for value, cell_limits in zip(frame[column], limits(frame, column), strict=True)
        ]
    return [
        text(mean) if pd.isna(half) else f"{text(mean)} ± {text(half, 2)}"
        for mean, half in zip(frame[column], frame[interval], strict=True)
    ]


# Columns by their names -> what a reader compares their values with: the ends of intervals with no effect.
ENDS_OF = {
    re.compile(r".*(ratio|gain|to_lowest|to_one_server|over_\w+|slowdown|speedup)_(low|high)"): 1.0,
    re.compile(r".*(difference|difference_pct|change_pct|saved_pct)_(low|high)"): 0.0,
    re.compile(r"p_(value|holm)"): 0.05,
}


def limits(frame: pd.DataFrame, column: str) -> list[tuple[float, ...]]:
    """What a reader compares each value of a column with, such as no effect; the text of a number must show it."""
    fixed = tuple(limit for name, limit in ENDS_OF.items() if name.fullmatch(column))
    if column.startswith("ratio") and {"low", "high"} <= set(frame):  # the allowed relative changes
        allowed = zip(frame["low"], frame["high"], strict=True)
        return [(*fixed, *(1 + each for each in pair if pd.notna(each))) for pair in allowed]
    return [fixed] * len(frame)


def ci95_name(column: str) -> str:
    """The column of the confidence interval of ``column``: ``ci95`` precedes the unit."""
    parts = cast(re.Match[str], re.fullmatch(r"(.*?)(_(?:s|w|j|js|mb|samples_per_s|gb_per_s|gflop_per_s))?", column))
    stem, unit = parts.groups()
    return f"{stem}_ci95{unit or ''}"


def text(value: Any, digits: int = SIGNIFICANT_DIGITS, limits: Iterable[float] = ()) -> str:
    """A number with some significant digits; a dash if missing; yes or no for a boolean.

    Without an exponent, unless so few decimals would be 0 of a number that is not. limits: see
    `study.core.wording.format_clearly`.
    """
    if pd.isna(value):
        return NOTHING
    if isinstance(value, str):
        return value
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_integer(value):
        return str(value)
    if not math.isfinite(value):
        return str(float(value))
    magnitude = int(f"{abs(value):.{digits - 1}e}".split("e")[1])
    written = format_clearly(
        value,
        limits,
        min(digits, MOST_DECIMALS + 1 + magnitude),
        lambda digits: _format_fixed(value, digits, magnitude),
    )
    return f"{value:.2g}" if value and not float(written) else written


def _format_fixed(value: float, digits: int, magnitude: int) -> str:
    """A number with so many significant digits. magnitude: the power of ten of the first digit."""
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def _plain_markdown(cell: object) -> str:
    """A cell that is read as text: one line, without HTML and without an end of the cell."""
    return " ".join(str(cell).split()).replace("|", "\\|").replace("<", "&lt;")


def _escape(cell: object) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"–": "--", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    escaped = "".join(special.get(character, character) for character in " ".join(str(cell).split()))
    # A bracket at the begin of a row would be an option of the end of the row before it.
    return f"{{}}{escaped}" if escaped.startswith("[") else escaped
