"""Lines of a text table that stay in memory as text, and samples whose lines are decoded for every batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.data import text_file, text_table
from study.data.block_faults import BlockFault
from study.data.feature_scaling import Scaler
from study.data.order import Positions
from study.data.samples import Batch, Can, Changes, SampleSource
from study.data.tabular import Form
from study.data.text_table import Bytes, Collected, Columns, Numbers


@dataclass(frozen=True)
class TextLines:
    """The lines of a table, without its header, as text.

    content: the bytes of the file. bounds: where each line begins, and where the last one ends. columns: of the table.
    """

    content: Bytes
    bounds: NDArray[np.int64]
    form: Form
    columns: Columns

    @classmethod
    def read(cls, path: Path, form: Form) -> TextLines:
        """The lines of a file, which is read once.

        Raises:
            StudyError: the lines of such a table cannot be decoded one by one.
        """
        content = text_file.content(path)
        if len(content) and content[-1] != text_table.LINE_FEED:
            content = np.append(content, np.uint8(text_table.LINE_FEED))
        ends = text_table.line_feeds(content) + 1
        first_line = content[: ends[0] if len(ends) else 0].tobytes()
        columns = text_table.columns(form, text_table.names_in(first_line, form))
        if columns is None:
            raise StudyError("the lines of this table cannot be decoded one by one; use another loader")
        bounds = np.concatenate([np.zeros(1, np.int64), ends])
        return cls(content, bounds[1:] if form.header and len(ends) else bounds, form, columns)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def numbers(self, rows: NDArray[np.int64]) -> Numbers:
        """The numbers of the lines ``rows``, decoded now: float32 (rows, numbers)."""
        text = [self.content[self.bounds[row] : self.bounds[row + 1]] for row in rows]
        numbers = np.empty((len(text), self.columns.numbers), np.float32)
        if text:
            self._decode(np.concatenate(text), numbers)
        return numbers

    def matrix(self, values: Sequence[Sequence[Any]]) -> Numbers:
        """The matrix of all lines, as the other loaders give it. values: for each code column its list of values.

        Raises:
            StudyError: a line has another length, or a value that may not be there.
        """
        categories = self.columns.categories
        matrix = np.empty((len(self), categories + self.columns.numbers), np.float32)
        try:
            texts, codes = self._decode(self.content[self.bounds[0] :], matrix[:, categories:])
        except BlockFault as error:
            raise StudyError(f"after row {error.row}: {error}") from None
        collected = Collected(categories)
        collected.add(texts, codes)
        for index, (column, known) in enumerate(zip(collected.categories(), values, strict=True)):
            found = column.series(self.form.codes[index], self.form.values[index])
            column.write(matrix[:, index], self.form.positions(found, known))
        return matrix

    def _decode(self, text: Bytes, target: Numbers) -> tuple[list[list[str]], NDArray[np.int32]]:
        """Decode the numbers into ``target``; returns what `Collected.add` takes."""
        codes = np.empty((self.columns.categories, len(target)), np.int32)
        return text_table.block_parser(self.form, self.columns)(text, target, codes), codes


@dataclass(frozen=True)
class LineSamples(SampleSource):
    """Samples whose inputs are decoded and scaled anew for each batch.

    Args:
        lines: one per sample of the file.
        scaler: of their numbers; None for none.
        y: float32, samples along the first axis; None for an autoencoder, whose output is its input.
        has_channel: whether the shape of an input is (features, 1) instead of (features,).
        order: lines of the samples; None for all in their order.
    """

    lines: TextLines
    scaler: Scaler | None
    y: Numbers | None
    has_channel: bool = False
    order: NDArray[np.int64] | None = None
    can = Can.RANDOM_ACCESS
    is_streamed = True
    threads = 1  # of its own: a training step keeps the framework's busy

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's input."""
        features = self.lines.columns.numbers
        return (features, 1) if self.has_channel else (features,)

    def __len__(self) -> int:
        return len(self.lines) if self.order is None else len(self.order)

    def rows(self, chosen: NDArray[np.int64] | slice) -> LineSamples:
        """The samples at the positions or slice ``chosen``; the lines are shared."""
        order = np.arange(len(self.lines)) if self.order is None else self.order
        return replace(self, order=order[chosen])

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """The samples at the positions ``chosen``, decoded now."""
        rows = chosen if self.order is None else self.order[chosen]
        x = self._inputs(rows)
        return x, x if self.y is None else self.y[rows]

    def _inputs(self, rows: NDArray[np.int64]) -> Numbers:
        numbers = self.lines.numbers(rows)
        if self.scaler is not None:
            self.scaler.apply(numbers)
        return numbers[..., None] if self.has_channel else numbers
