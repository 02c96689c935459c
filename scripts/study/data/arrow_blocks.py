"""Parse blocks of lines with Arrow: for tables whose numbers are contiguous, where the compiled parser is missing.

A CSV reader has a cost per column, and these tables have up to 60,000. So the numbers of all lines of a block are
flattened into one column, which Arrow parses. The columns before the numbers (a label, a name) are cut off beforehand.
The values of each line are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from study.core.lazy import pandas as pd
from study.data.block_faults import BlockFault
from study.data.tabular import Column, Form

MOST_LEADING = 8  # columns before the numbers
HEAD_BYTES = 4096  # first part of a line in which its leading columns are searched
LINE_FEED, CARRIAGE_RETURN, QUOTE, PLUS = b'\n\r"+'

Bytes = NDArray[np.uint8]


def leading_columns(form: Form, names: Sequence[Column]) -> int | None:
    """The number of columns before a table's numbers; None if this module cannot read the table.

    It can if Arrow is installed, the numbers are contiguous up to the end of the line and all of them are kept.
    """
    if find_spec("pyarrow") is None:
        return None
    kinds = [form.kind(name) for name in names]
    leading = kinds.index("number") if "number" in kinds else len(kinds)
    rest = kinds[leading:]
    if form.keep is not None or leading > MOST_LEADING or not rest or set(rest) != {"number"}:
        return None
    return leading


def parser(
    form: Form, names: Sequence[Column]
) -> Callable[[Bytes, NDArray[np.float32], NDArray[np.int32]], list[list[str]]]:
    """The function that parses a block, see `study.data.text_table.ParseBlock`."""
    leading, separator = leading_columns(form, names) or 0, ord(form.separator)

    def parse(content: Bytes, target: NDArray[np.float32], codes: NDArray[np.int32]) -> list[list[str]]:
        try:
            texts = _parse(content, target, leading, separator, len(names), form)
        except BlockFault:
            raise
        except ValueError as error:
            raise BlockFault(str(error)) from None
        found = []
        for index, name in enumerate(form.codes):
            codes[index], different = pd.factorize(np.array(texts[names.index(name)], dtype=object))
            found.append(different.tolist())
        return found

    return parse


def _parse(
    content: Bytes, target: NDArray[np.float32], leading: int, separator: int, columns: int, form: Form
) -> list[list[str]]:
    """Parse the lines into the rows of ``target``; returns the texts before the numbers, by column."""
    if content.min() == 0 or content.max() > ord("~") or (content == QUOTE).any():
        raise ValueError("there is a zero byte, a quote or what is not ASCII")
    ends = np.flatnonzero(content == LINE_FEED)
    if not len(ends) or ends[-1] != len(content) - 1:
        ends = np.append(ends, len(content))
    if np.count_nonzero(content == CARRIAGE_RETURN) != np.count_nonzero(content[ends - 1] == CARRIAGE_RETURN):
        raise ValueError("there is a carriage return within a line")
    numbers, lines, texts = _without_leading(content, ends, leading, separator)
    separators = numbers == separator
    for row, (start, stop) in enumerate(lines):
        found = np.count_nonzero(separators[start:stop]) + 1 + leading
        if found != columns:
            raise BlockFault(f"{found} values, {columns} were expected", row)
    np.copyto(numbers, LINE_FEED, where=separators)
    with np.errstate(over="ignore"):
        target[...] = _numbers(numbers, form).reshape(target.shape)
    return texts


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
