"""Read wide numeric text tables straight to float32, in blocks of lines, on all cores and in constant memory.

A parser has a cost per column, and these tables have 60,000. So the numbers of all lines of a block are flattened into
one column, which Arrow's CSV reader parses. The columns before the numbers (a label, a name) are cut off beforehand.
The values of each line are counted.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.core.files import AnyPath
from study.data.tabular import Column, Form

BLOCK_BYTES = 2 << 20  # of text; the buffers of a thread are several times that
MOST_LEADING = 8  # columns before the numbers
HEAD_BYTES = 4096  # first part of a line in which its leading columns are searched
LINE_FEED, CARRIAGE_RETURN, QUOTE, PLUS = b'\n\r"+'

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """Positions of the lines of a table.

    size: of the file, in bytes. begin: position of the first line after the header. ends: position of each line's line
    feed. columns: number per line. leading: how many of them precede the numbers.
    """

    path: Path
    size: int
    begin: int
    ends: NDArray[np.int64]
    columns: int
    leading: int

    @property
    def rows(self) -> int:
        """The number of lines."""
        return len(self.ends)

    @property
    def is_whole(self) -> bool:
        """Whether the last line ends with a line feed."""
        return self.rows > 0 and self.ends[-1] < self.size

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The bytes from line ``first`` up to, but not including, line ``last``: (begin, end)."""
        return (int(self.ends[first - 1]) + 1 if first else self.begin), int(self.ends[last - 1])

    def blocks(self) -> Iterator[tuple[int, int]]:
        """(first, last) of each block of lines; ``last`` is not included."""
        first = 0
        while first < self.rows:
            limit = self.span(first, first + 1)[0] + BLOCK_BYTES
            last = max(first + 1, int(np.searchsorted(self.ends, limit)))
            yield first, last
            first = last


class BlockError(ValueError):
    """A block cannot be parsed; first_row: its first line."""

    def __init__(self, message: str, first_row: int) -> None:
        super().__init__(message)
        self.first_row = first_row


def column_names(path: AnyPath, form: Form) -> Sequence[Column]:
    """The names of the columns of the table in ``path``; numbers if it has no header."""
    with open(path, "rb") as handle:
        return names_in(handle.readline(), form)


def names_in(line: bytes, form: Form) -> Sequence[Column]:
    """The same, from the first line of a table."""
    if form.header:
        return line.decode("ascii", errors="replace").rstrip("\r\n").split(form.separator)
    return list(range(line.count(form.separator.encode()) + 1))


def leading_columns(form: Form, names: Sequence[Column]) -> int | None:
    """The number of columns before a table's numbers; None if this module cannot read the table.

    It can if the numbers are contiguous up to the end of the line and all of them are kept.
    """
    kinds = [form.kind(name) for name in names]
    leading = kinds.index("number") if "number" in kinds else len(kinds)
    rest = kinds[leading:]
    if form.keep is not None or leading > MOST_LEADING or not rest or set(rest) != {"number"}:
        return None
    return leading


def layout(path: Path, form: Form, leading: int, columns: int) -> Layout:
    """The `Layout` of the table in ``path``; reads the file once, on all cores."""
    size = Path(path).stat().st_size
    starts = range(0, size, BLOCK_BYTES)
    with ThreadPoolExecutor(_cores()) as pool:
        found = pool.map(lambda start: _line_feeds(path, start, min(BLOCK_BYTES, size - start)), starts)
        ends = np.concatenate([np.empty(0, dtype=np.int64), *found])
    if size and (len(ends) == 0 or ends[-1] != size - 1):
        ends = np.append(ends, size)  # the last line has no line feed
    begin = int(ends[0]) + 1 if form.header else 0
    return Layout(path, size, begin, ends[1:] if form.header else ends, columns, leading)


def fill(
    target: NDArray[np.float32], table: Layout, form: Form, done: Callable[[int, int], object] | None = None
) -> list[list[str]]:
    """Parse all lines of ``table`` into ``target``, float32 of (rows, columns - leading).

    Each number is the nearest float64, rounded to float32; missing numbers are NaN. done: called in order with (first,
    last) of each block whose rows are in ``target``. Returns the texts before the numbers, one list per leading column.
    Raises `BlockError` for the first block with a line of another length or a value that is not a number.
    """
    texts: list[list[str]] = [[] for _ in range(table.leading)]
    with ThreadPoolExecutor(_cores()) as pool:
        waiting = [(block, pool.submit(_parse_block, target, table, form, *block)) for block in table.blocks()]
        try:
            for block, parsed in waiting:
                for text, column in zip(texts, parsed.result(), strict=True):
                    text.extend(column)
                if done:
                    done(*block)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return texts


def code_columns(form: Form, names: Sequence[Column], texts: list[list[str]]) -> Iterator[pd.Series]:
    """The columns of categories as series, numeric if their values are numbers; texts: the result of `fill`.

    A text that should be a number but is not stays text, and so matches none of the values.
    """
    for column, allowed in zip(form.codes, form.values, strict=True):
        found = pd.Series(texts[names.index(column)], name=column, dtype=object)
        if allowed is not None:
            numbers = pd.to_numeric(found, errors="coerce")
            found = numbers if numbers.notna().all() else numbers.astype(object).where(numbers.notna(), found)
        yield found


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _read(path: AnyPath, begin: int, size: int) -> Bytes:
    """``size`` bytes from ``begin``, as an array."""
    content, done = np.empty(size, dtype=np.uint8), 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while done < size:
            got = os.preadv(descriptor, [content.data[done:]], begin + done)
            if got == 0:
                raise ValueError("the file became shorter while it was read")
            done += got
    finally:
        os.close(descriptor)
    return content


def _line_feeds(path: AnyPath, begin: int, size: int) -> NDArray[np.int64]:
    return np.flatnonzero(_read(path, begin, size) == LINE_FEED) + begin


def _parse_block(target: NDArray[np.float32], table: Layout, form: Form, first: int, last: int) -> list[list[str]]:
    """Parse lines ``first`` to ``last`` into their rows of ``target``; returns the texts before the numbers."""
    try:
        begin, end = table.span(first, last)
        content = _read(table.path, begin, end - begin)
        if content.min() == 0 or content.max() > ord("~") or (content == QUOTE).any():
            raise ValueError("there is a zero byte, a quote or what is not ASCII")
        ends = table.ends[first:last] - begin
        if np.count_nonzero(content == CARRIAGE_RETURN) != np.count_nonzero(content[ends - 1] == CARRIAGE_RETURN):
            raise ValueError("there is a carriage return within a line")
        separator = ord(form.separator)
        numbers, lines, texts = _without_leading(content, ends, table.leading, separator)
        separators = numbers == separator
        for row, (start, stop) in enumerate(lines, start=first):
            found = np.count_nonzero(separators[start:stop]) + 1 + table.leading
            if found != table.columns:
                raise ValueError(f"row {row + 1} has {found} values, {table.columns} were expected")
        np.copyto(numbers, LINE_FEED, where=separators)
        rows = target[first:last]
        with np.errstate(over="ignore"):
            rows[...] = _numbers(numbers, form).reshape(rows.shape)
        return texts
    except ValueError as error:
        raise BlockError(str(error), first) from error


def _without_leading(
    content: Bytes, ends: NDArray[np.int64], leading: int, separator: int
) -> tuple[Bytes, list[tuple[int, int]], list[list[str]]]:
    """The numbers of the lines without the columns before them; each line ends with one line feed.

    ends: of the lines, in ``content``. Returns (array of bytes, (begin, end) of each line in it, texts per column).
    """
    numbers = np.empty(len(content) + 1, dtype=np.uint8)
    lines: list[tuple[int, int]] = []
    texts: list[list[str]] = [[] for _ in range(leading)]
    start = filled = 0
    for end in ends.tolist():
        stop = end - 1 if end > start and content[end - 1] == CARRIAGE_RETURN else end
        if stop == start:
            raise ValueError("there is an empty line")
        if leading:
            start = _skip_leading(content, start, stop, separator, texts)
        size = stop - start
        numbers[filled : filled + size] = content[start:stop]
        numbers[filled + size] = LINE_FEED
        lines.append((filled, filled + size))
        filled += size + 1
        start = end + 1
    return numbers[:filled], lines, texts


def _skip_leading(content: Bytes, start: int, stop: int, separator: int, texts: list[list[str]]) -> int:
    """Position where the numbers of a line begin; the columns before them are appended to ``texts``."""
    for size in (HEAD_BYTES, stop - start):
        head = content[start : min(stop, start + size)].tobytes().split(bytes([separator]), len(texts))
        if len(head) > len(texts):
            for text, value in zip(texts, head[:-1], strict=True):
                text.append(value.decode("ascii"))
            return start + sum(len(value) + 1 for value in head[:-1])
    raise ValueError("a line has too few values")


def _numbers(column: Bytes, form: Form) -> NDArray[np.float64]:
    """Parse one column of numbers: float64."""
    import pyarrow as pa
    from pyarrow import csv

    if column[0] == PLUS or np.any(column[1:][column[:-1] == LINE_FEED] == PLUS):
        column = _without_plus(column)  # Arrow does not accept a plus sign
    try:
        table = csv.read_csv(
            pa.py_buffer(column),
            read_options=csv.ReadOptions(use_threads=False, column_names=["x"], block_size=len(column) + 1),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types={"x": pa.float64()}, null_values=list(form.missing)),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    numbers = table["x"].to_numpy()
    if np.isnan(numbers).sum() != table["x"].null_count:
        raise ValueError("a value is neither a number nor one of the words for a missing value")
    return numbers


def _without_plus(column: Bytes) -> Bytes:
    text = b"\n" + column.tobytes()
    if any(b"\n+" + sign in text for sign in (b"+", b"-")):
        raise ValueError("there are two signs")
    return np.frombuffer(text.replace(b"\n+", b"\n"), dtype=np.uint8)[1:]
