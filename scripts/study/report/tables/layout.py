"""A finished table and its forms: CSV for machines; Markdown, LaTeX and a page of the report for people."""

import re
from dataclasses import dataclass, field

import pandas as pd

from study.core.files import write_text, written_aside
from study.report import html

NOTHING = "–"
SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True)
class Table:
    """``frame`` has every column, numbers as numbers; the forms for people have ``shown``.

    Of the shown columns, those in ``optional`` are left out where they have nothing to tell. A column ``records``
    names the run records or loading measurements behind each row.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    shown: list
    optional: tuple = ()
    notes: list = field(default_factory=list)

    def write(self, csv, markdown, latex, html):
        """Write the four files, each whole or not at all."""
        with written_aside(csv) as aside:
            self.frame.to_csv(aside, index=False)
        write_text(markdown, self.markdown())
        write_text(latex, self.latex())
        write_text(html, self.html())

    def markdown(self):
        """The table with its caption and notes."""
        body = self._body().to_markdown(index=False, disable_numparse=True, colalign=self._alignment())
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"**{self.name}**: {self.caption}\n\n{body}\n" + (f"{notes}\n" if notes else "")

    def latex(self):
        """A ``table`` environment for the booktabs package."""
        body = self._body()
        body.columns = [_escape(column) for column in body.columns]
        body = body.map(_escape)
        caption = _escape(" ".join([self.caption, *(f"{note}." for note in self.notes)]))
        columns = "".join("r" if side == "right" else "l" for side in self._alignment())
        return body.to_latex(index=False, caption=caption, label=f"tab:{self.name}", column_format=columns)

    def html(self):
        """A page of its own with the table, its notes, and the records behind each row."""
        right = [position for position, side in enumerate(self._alignment()) if side == "right"]
        parts = [html.paragraph(self.caption), html.table(self._body(), right), html.items(self.notes)]
        if "records" in self.frame:
            records = self.frame["records"].fillna("none").str.replace("; ", "\n")
            parts.append(html.folded("The records behind each row, in order", html.items(records, "ol")))
        return html.page(self.name, *parts)

    def _body(self):
        columns = {column: _text_column(self.frame, column) for column in self._present()}
        return pd.DataFrame(columns, index=self.frame.index)

    def _present(self):
        told = [column for column in self.shown if column in self.frame]
        return [column for column in told if column not in self.optional or _tells(self.frame[column])]

    def _alignment(self):
        numeric = [pd.api.types.is_numeric_dtype(self.frame[column]) for column in self._present()]
        return ["right" if is_number else "left" for is_number in numeric]


def _tells(column):
    """Whether a column has anything but nothing, no, 0 and what a grid's keys are where a study does not give them."""
    return any(bool(value) and value not in ("none", "tf_data") for value in column.dropna())


def _text_column(frame, column):
    """Cells as text; a column with a confidence interval beside it as ``mean ± half-width``."""
    interval = ci95_name(column)
    if interval not in frame:
        return [text(value) for value in frame[column]]
    return [
        text(mean) if pd.isna(half) else f"{text(mean)} ± {text(half, 2)}"
        for mean, half in zip(frame[column], frame[interval], strict=True)
    ]


def ci95_name(column):
    """The column that holds the confidence interval of ``column``: ``ci95`` goes before the unit."""
    stem, unit = re.fullmatch(r"(.*?)(_(?:s|w|j|js|mb|samples_per_s))?", column).groups()
    return f"{stem}_ci95{unit or ''}"


def text(value, digits=SIGNIFICANT_DIGITS):
    """A number to some significant digits without an exponent, a dash for nothing, yes or no for a truth value."""
    if pd.isna(value):
        return NOTHING
    if isinstance(value, str):
        return value
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_integer(value):
        return str(value)
    magnitude = f"{abs(value):.{digits - 1}e}"
    decimals = max(0, digits - 1 - int(magnitude.split("e")[1]))
    return f"{value:.{min(decimals, 6)}f}"


def _escape(cell):
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"–": "--", "±": r"$\pm$"}
    return "".join(special.get(character, character) for character in str(cell))
