"""Wide numeric text tables straight to float32, by blocks of lines, on all cores and with flat memory.

A parser pays for each column, and these tables have 60,000. So the numbers of a block's lines are put one below the
other, which is one column, and Arrow's CSV reader parses that; what stands before the numbers of a line (a label, a
name) is cut off by hand. Each line's values are counted.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

BLOCK_BYTES = 2 << 20  # of text; the buffers of a thread are some times that
MOST_LEADING = 8  # columns before the numbers
HEAD_BYTES = 4096  # of a line, in which its leading columns are looked for first
LINE_FEED, CARRIAGE_RETURN, QUOTE, PLUS = b'\n\r"+'


@dataclass(frozen=True)
class Layout:
    """Where the lines of a table are.

    size: the file's, in bytes. begin: of the first line after the header; ends: position of each line's line feed.
    columns: of each line; leading: how many of them stand before the numbers.
    """

    path: Path
    size: int
    begin: int
    ends: np.ndarray
    columns: int
    leading: int

    @property
    def rows(self):
        """The number of lines."""
        return len(self.ends)

    @property
    def is_whole(self):
        """Whether the last line has its end."""
        return self.rows > 0 and self.ends[-1] < self.size

    def span(self, first, last):
        """The bytes from line ``first`` up to line ``last``, without it: (begin, end)."""
        return (int(self.ends[first - 1]) + 1 if first else self.begin), int(self.ends[last - 1])

    def blocks(self):
        """(first, last) of each block of lines, ``last`` not among them."""
        first = 0
        while first < self.rows:
            limit = self.span(first, first + 1)[0] + BLOCK_BYTES
            last = max(first + 1, int(np.searchsorted(self.ends, limit)))
            yield first, last
            first = last


class BlockError(ValueError):
    """A block that cannot be parsed; first_row: its first line."""

    def __init__(self, message, first_row):
        super().__init__(message)
        self.first_row = first_row


def column_names(path, form):
    """The names of the columns of the table in ``path``; their numbers where it has no header."""
    with open(path, "rb") as handle:
        return names_in(handle.readline(), form)


def names_in(line, form):
    """The same, from a table's first line."""
    if form.header:
        return line.decode("ascii", errors="replace").rstrip("\r\n").split(form.separator)
    return list(range(line.count(form.separator.encode()) + 1))


def leading_columns(form, names):
    """How many of a table's columns stand before its numbers; None where this module cannot read it.

    It can where the numbers follow one another up to the end of the line and all of them are kept.
    """
    kinds = [form.kind(name) for name in names]
    leading = kinds.index("number") if "number" in kinds else len(kinds)
    rest = kinds[leading:]
    if form.keep is not None or leading > MOST_LEADING or not rest or set(rest) != {"number"}:
        return None
    return leading


def layout(path, form, leading, columns):
    """The `Layout` of the table in ``path``; reads it once, on all cores."""
    size = Path(path).stat().st_size
    starts = range(0, size, BLOCK_BYTES)
    with ThreadPoolExecutor(_cores()) as pool:
        found = pool.map(lambda start: _line_feeds(path, start, min(BLOCK_BYTES, size - start)), starts)
        ends = np.concatenate([np.empty(0, dtype=np.int64), *found])
    if size and (len(ends) == 0 or ends[-1] != size - 1):
        ends = np.append(ends, size)  # the last line has no end
    begin = int(ends[0]) + 1 if form.header else 0
    return Layout(path, size, begin, ends[1:] if form.header else ends, columns, leading)


def fill(target, table, form, done=None):
    """Parse all lines of ``table`` into ``target``, float32 of (rows, columns - leading).

    Each number is the nearest float64, rounded to float32; missing ones are NaN. done: called in order with
    (first, last) of each block whose rows are in ``target``. Returns the texts before the numbers, a list a leading
    column. Raises `BlockError` for the first block that has a line of another length or what is no number.
    """
    texts = [[] for _ in range(table.leading)]
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


def code_columns(form, names, texts):
    """The columns of categories as series, numbers where their values are; texts: what `fill` returned.

    What is no number where there should be one stays text, which is none of the values.
    """
    for column, allowed in zip(form.codes, form.values, strict=True):
        found = pd.Series(texts[names.index(column)], name=column, dtype=object)
        if allowed is not None:
            numbers = pd.to_numeric(found, errors="coerce")
            found = numbers if numbers.notna().all() else numbers.astype(object).where(numbers.notna(), found)
        yield found


def _cores():
    return len(os.sched_getaffinity(0))


def _read(path, begin, size):
    """``size`` bytes from ``begin``, as an array."""
    content, done = np.empty(size, dtype=np.uint8), 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while done < size:
            got = os.preadv(descriptor, [memoryview(content)[done:]], begin + done)
            if got == 0:
                raise ValueError("the file became shorter while it was read")
            done += got
    finally:
        os.close(descriptor)
    return content


def _line_feeds(path, begin, size):
    return np.flatnonzero(_read(path, begin, size) == LINE_FEED) + begin


def _parse_block(target, table, form, first, last):
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


def _without_leading(content, ends, leading, separator):
    """The lines' numbers without what stands before them, one line feed after each line's last.

    ends: of the lines, in ``content``. Returns (array of bytes, (begin, end) of each line in it, texts a column).
    """
    numbers, lines, texts = np.empty(len(content) + 1, dtype=np.uint8), [], [[] for _ in range(leading)]
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


def _skip_leading(content, start, stop, separator, texts):
    """Where the numbers of a line begin; what stands before them is appended to ``texts``."""
    for size in (HEAD_BYTES, stop - start):
        head = content[start : min(stop, start + size)].tobytes().split(bytes([separator]), len(texts))
        if len(head) > len(texts):
            for text, value in zip(texts, head[:-1], strict=True):
                text.append(value.decode("ascii"))
            return start + sum(len(value) + 1 for value in head[:-1])
    raise ValueError("a line has too few values")


def _numbers(column, form):
    """Parse numbers that stand one below the other: float64."""
    import pyarrow as pa
    from pyarrow import csv

    if column[0] == PLUS or np.any(column[1:][column[:-1] == LINE_FEED] == PLUS):
        column = _without_plus(column)  # which Arrow does not take
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
        raise ValueError("there is a word for no number that is none of those for a missing one")
    return numbers


def _without_plus(column):
    text = b"\n" + column.tobytes()
    if any(b"\n+" + sign in text for sign in (b"+", b"-")):
        raise ValueError("there are two signs")
    return np.frombuffer(text.replace(b"\n+", b"\n"), dtype=np.uint8)[1:]
