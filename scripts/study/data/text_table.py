"""Read text tables straight to float32, in blocks of lines, on all cores and in constant memory.

A block's lines are parsed by compiled code (`study.data._numbers`), which handles every form of table. Where it was not
built, this module reads no table.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core import cores
from study.core.files import AnyPath
from study.core.lazy import pandas as pd
from study.data import text_file
from study.data.tabular import Column, Form

compiled: Any
try:
    import study.data._numbers as compiled
except ImportError:  # there was no C++ compiler, or one older than C++17's from_chars
    compiled = None

BLOCK_BYTES = 1 << 20  # of text; with its numbers, it stays in a core's cache
CATEGORY_BLOCKS = 4  # times as large for a table with categories: those of each block are compared with those before
LINE_FEED = ord("\n")
LEFT_OUT, FIRST_TEXT = -1, -2  # places of columns, see `Columns`
SHORT_EXPONENT = 7  # see `are_plain`
CASE = 0x20  # bit that makes a letter a small one

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.float32]
Positions = NDArray[np.int32]
# (content, target, codes) -> for each column of categories its texts, in order of appearance. Parses the lines in
# content into the rows of target and codes; raises `BlockFault`.
ParseBlock = Callable[[Bytes, Numbers, Positions], list[list[str]]]


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    names: of all columns; numbers if the table has no header. places: for each column its position among the numbers
    that are kept, `LEFT_OUT`, or ``FIRST_TEXT - k`` for the k-th column of categories. numbers, categories: how many
    there are of each.
    """

    names: Sequence[Column]
    places: NDArray[np.int32]
    numbers: int
    categories: int


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    texts: in order of appearance. blocks: for each block of lines the positions of its texts in ``texts``, and each
    row's position among the block's.
    """

    texts: list[str]
    blocks: list[tuple[Positions, Positions]]

    def write(self, column: NDArray[np.float32], values: NDArray[Any]) -> None:
        """Write each row's value into ``column``; values: of each of ``texts``."""
        begin = 0
        for places, codes in self.blocks:
            column[begin : begin + len(codes)] = values[places].astype(np.float32)[codes]
            begin += len(codes)

    def series(self, name: Column, allowed: Sequence[int] | None) -> pd.Series:
        """The texts as a pandas series, numeric if ``allowed`` values are numbers and all texts are.

        A text that should be a number but is not stays text, and so matches none of the values.
        """
        texts = pd.Series(self.texts, name=name, dtype=object)
        if allowed is None:
            return texts
        numbers = pd.to_numeric(texts, errors="coerce")
        return numbers if numbers.notna().all() else numbers.astype(object).where(numbers.notna(), texts)


class BlockFault(ValueError):
    """A line of a block cannot be parsed; row: its position in the block, or that of an earlier line."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class BlockError(ValueError):
    """A block cannot be parsed; first_row: the first line that may be at fault."""

    def __init__(self, message: str, first_row: int) -> None:
        super().__init__(message)
        self.first_row = first_row


def read_column_names(path: AnyPath, form: Form) -> Sequence[Column]:
    """Names of the columns of the table in ``path``; numbers if it has no header."""
    with text_file.open_text(path) as handle:
        return split_names(handle.readline(), form)


def split_names(line: bytes, form: Form) -> Sequence[Column]:
    """Names of the columns in a table's first line; numbers without a header. Bytes not in UTF-8 stay distinct."""
    if form.header:
        return line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").split(form.separator)
    return list(range(line.count(form.separator.encode()) + 1))


def find_columns(form: Form, names: Sequence[Column]) -> Columns | None:
    """The `Columns` of a table; None if this module cannot read it."""
    numbers = form.select_numbers(names)
    place = {name: index for index, name in enumerate(numbers)} | {
        name: FIRST_TEXT - index for index, name in enumerate(form.codes)
    }
    if len(place) != len(numbers) + len(form.codes) or not place.keys() <= set(names):
        return None  # a column with two uses, or one that is not there
    if compiled is None:
        return None
    places = np.array([place.get(name, LEFT_OUT) for name in names], dtype=np.int32)
    return Columns(names, places, len(numbers), len(form.codes))


def make_block_parser(form: Form, table: Columns) -> ParseBlock:
    """The function that parses a block of lines of a table."""
    words = _make_compiled_parser(form, table)

    def parse(content: Bytes, target: Numbers, codes: Positions) -> list[list[str]]:
        texts = words(content, target, codes)
        form.mark_missing(target)
        return texts

    return parse if form.missing_numbers else words


def _make_compiled_parser(form: Form, table: Columns) -> ParseBlock:
    """The function that parses a block with the compiled code."""
    missing, separator = tuple(word.encode() for word in form.missing), form.separator.encode()

    def parse(content: Bytes, target: Numbers, codes: Positions) -> list[list[str]]:
        try:
            return compiled.parse(content, separator, table.places, missing, target, codes)
        except ValueError as error:
            message, row = error.args
            raise BlockFault(message, row) from None

    return parse


@dataclass
class CategoryCollector:
    """Collects the categories of blocks, in order."""

    columns: int
    _seen: list[dict[str, int]] = field(init=False)
    _blocks: list[list[tuple[Positions, Positions]]] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = [{} for _ in range(self.columns)]
        self._blocks = [[] for _ in range(self.columns)]

    def add(self, texts: list[list[str]], codes: Positions) -> None:
        """Add a block: the texts of each column, and each row's position among them."""
        for positions, blocks, new, block in zip(self._seen, self._blocks, texts, codes, strict=True):
            blocks.append(
                (np.array([positions.setdefault(text, len(positions)) for text in new], dtype=np.int32), block)
            )

    def categories(self) -> list[Categories]:
        """The columns of categories."""
        return [Categories(list(positions), blocks) for positions, blocks in zip(self._seen, self._blocks, strict=True)]


@dataclass(frozen=True)
class Layout:
    """Positions of the lines of a table: its size in bytes, the begin of its first line, and each line's line feed.

    text: the table's text where the file is compressed, which then is in memory; None to read the file.
    """

    path: Path
    text: Bytes | None
    size: int
    begin: int
    ends: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The number of lines."""
        return len(self.ends)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The bytes from line ``first`` up to, but not including, line ``last``: (begin, end)."""
        return (int(self.ends[first - 1]) + 1 if first else self.begin), int(self.ends[last - 1])

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """(first, last) of each block of lines of about ``size`` bytes; ``last`` is not included."""
        first = 0
        while first < self.rows:
            limit = self.span(first, first + 1)[0] + size
            last = max(first + 1, int(np.searchsorted(self.ends, limit)))
            yield first, last
            first = last


def find_layout(path: Path, form: Form) -> Layout:
    """The `Layout` of the table in ``path``, from one read on all cores."""
    text = text_file.read_content(path) if text_file.is_compressed(path) else None
    size = Path(path).stat().st_size if text is None else len(text)
    buffers = _Buffers(path, text)

    def find(start: int) -> NDArray[np.int64]:
        return find_line_feeds(buffers.read(start, min(BLOCK_BYTES, size - start))) + start

    with ThreadPoolExecutor(cores.count_threads()) as pool:
        ends = np.concatenate([np.empty(0, dtype=np.int64), *pool.map(find, range(0, size, BLOCK_BYTES))])
    if size and (len(ends) == 0 or ends[-1] != size - 1):
        ends = np.append(ends, size)  # the last line has no line feed
    begin = int(ends[0]) + 1 if form.header else 0
    return Layout(path, text, size, begin, ends[1:] if form.header else ends)


def fill_matrix(target: Numbers, lines: Layout, form: Form, table: Columns) -> list[Categories]:
    """Parse all ``lines`` of a table into ``target``, float32 of (rows, numbers).

    Each number is the nearest float64, rounded to float32; missing numbers are NaN. Returns the columns of categories.
    Raises `BlockError` for the first block with a line of another length or a value that is not a number.
    """
    parse, collected = make_block_parser(form, table), CategoryCollector(table.categories)
    buffers = _Buffers(lines.path, lines.text)

    def parse_block(first: int, last: int) -> tuple[list[list[str]], Positions]:
        begin, end = lines.span(first, last)
        codes = np.empty((table.categories, last - first), dtype=np.int32)
        try:
            return parse(buffers.read(begin, end - begin), target[first:last], codes), codes
        except BlockFault as error:
            raise BlockError(str(error), first + error.row) from None
        except ValueError as error:
            raise BlockError(str(error), first) from None

    with ThreadPoolExecutor(cores.count_threads()) as pool:
        size = BLOCK_BYTES * (CATEGORY_BLOCKS if table.categories else 1)
        waiting = [pool.submit(parse_block, *block) for block in lines.blocks(size)]
        try:
            for parsed in waiting:
                collected.add(*parsed.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return collected.categories()


@dataclass(frozen=True)
class Block:
    """Some rows of a table: float32 of (rows, categories + numbers), the number of missing values, see `are_plain`.

    The columns of categories are 0: see `Stream`.
    """

    rows: Numbers
    missing: int
    has_plain_numbers: bool


@dataclass
class Stream:
    """Reads a table once, from begin to end; the checksum and the parsing, on all cores, overlap with it.

    check: of a block's numbers, their missing values; it raises ValueError if they may not be so. After `blocks`: the
    number of rows, the size of the file in bytes, its checksum (SHA-256, hexadecimal), and the columns of categories.
    """

    path: Path
    form: Form
    table: Columns
    check: Callable[[Numbers], int]
    rows: int = 0
    size: int = 0
    checksum: str = ""
    categories: list[Categories] = field(default_factory=list)

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order; in memory are a few per core.

        Raises `BlockError` for the first fault, also if the last line has no line feed, and OSError.
        """
        parse, collected = make_block_parser(self.form, self.table), CategoryCollector(self.table.categories)
        waiting: deque[Future[tuple[Block, list[list[str]], Positions]]] = deque()
        checksum = hashlib.sha256()

        def see(content: memoryview) -> None:
            checksum.update(content)
            self.size += len(content)

        def next_block() -> Block:
            block, texts, codes = waiting.popleft().result()
            collected.add(texts, codes)
            return block

        with ThreadPoolExecutor(cores.count_threads()) as pool, text_file.open_text(self.path, see) as handle:
            try:
                for text, count in _read_whole_lines(handle, self.form.header):
                    waiting.append(pool.submit(self._parse, parse, text, self.rows, count))
                    self.rows += count
                    if len(waiting) > 2 * cores.count_threads():
                        yield next_block()
                while waiting:
                    yield next_block()
            except CutOffError as error:
                raise BlockError(str(error), self.rows) from None
            finally:
                pool.shutdown(cancel_futures=True)
        self.categories, self.checksum = collected.categories(), checksum.hexdigest()

    def _parse(
        self, parse: ParseBlock, text: Bytes, first: int, count: int
    ) -> tuple[Block, list[list[str]], Positions]:
        """Parse one block; returns it with its categories."""
        rows = np.zeros((count, self.table.categories + self.table.numbers), dtype=np.float32)
        codes = np.empty((self.table.categories, count), dtype=np.int32)
        numbers = rows[:, self.table.categories :]
        try:
            texts = parse(text, numbers, codes)
            return Block(rows, self.check(numbers), are_plain(text)), texts, codes
        except BlockFault as error:
            raise BlockError(str(error), first + error.row) from None
        except ValueError as error:
            raise BlockError(str(error), first) from None


class CutOffError(ValueError):
    """The last line of a table has no line feed."""


def _read_whole_lines(handle: Any, header: bool) -> Iterator[tuple[Bytes, int]]:
    """Yield the lines after the header in blocks, each with the number of its lines."""
    rest = np.empty(0, dtype=np.uint8)
    while True:
        content = np.empty(len(rest) + max(BLOCK_BYTES, len(rest)), dtype=np.uint8)
        content[: len(rest)] = rest
        read_bytes = handle.readinto(content.data[len(rest) :])
        if not read_bytes:
            break
        content = content[: len(rest) + read_bytes]
        ends = find_line_feeds(content)
        if header and len(ends):
            content, ends, header = content[ends[0] + 1 :], ends[1:] - ends[0] - 1, False
        last = int(ends[-1]) + 1 if len(ends) else 0
        if last:
            yield content[:last], len(ends)
        rest = content[last:]
    if len(rest):
        raise CutOffError("the file is cut off: its last line has no end")


def has_plain_numbers(path: AnyPath, form: Form) -> bool:
    """True if `are_plain` holds for all numbers of a table."""
    with text_file.open_text(path) as handle:
        return all(are_plain(text) for text, _ in _read_whole_lines(handle, form.header))


def are_plain(text: Bytes) -> bool:
    """True if all numbers in a text have at most 15 digits with the point and exponents up to 7, and none is -0.

    The digits are then an integer below 2^53 and the power of ten at most 10^22, both exact as float64, so that one
    multiplication or division rounds correctly: pandas' default parser gives the nearest float64. It takes columns of
    integers for int64, which holds them, but for the sign of a zero.
    """
    is_digit = (text - np.uint8(ord("0")) <= 9) | (text == ord("."))  # unsigned: others are above 9
    runs = is_digit
    for step in (1, 2, 4, 8):
        runs = runs[:-step] & runs[step:]  # whether 2, 4, 8, 16 from here on are digits
    if runs.any():
        return False
    after_sign = np.concatenate([text, np.zeros(2, np.uint8)])
    signs = np.flatnonzero(text == ord("-"))
    signs = signs[(text[signs - 1] | CASE) != ord("e")]
    if ((after_sign[signs + 1] == ord("0")) & (after_sign[signs + 2] != ord("."))).any():
        return False
    marks = np.flatnonzero((text[1:] | CASE) == ord("e")) + 1
    marks = marks[is_digit[marks - 1]]
    if not len(marks):
        return True
    after = np.concatenate([text, np.zeros(4, np.uint8)])[marks[:, None] + np.arange(1, 5)]
    is_signed = (after[:, 0] == ord("+")) | (after[:, 0] == ord("-"))
    digits = np.where(is_signed[:, None], after[:, 1:], after[:, :3]) - np.uint8(ord("0"))
    first, second, third = digits.T.astype(np.int64)
    exponent = np.where(second <= 9, 10 * first + second, first)
    return not ((first <= 9) & ((exponent > SHORT_EXPONENT) | ((second <= 9) & (third <= 9)))).any()


def find_line_feeds(content: Bytes) -> NDArray[np.int64]:
    """Positions of the line feeds in ``content``."""
    if compiled is None:
        return np.flatnonzero(content == LINE_FEED)
    return np.frombuffer(compiled.line_feeds(content), dtype=np.int64)


class _Buffers(threading.local):
    """A buffer for each thread, so that reading a block allocates no new memory.

    text: that of the file, if it is in memory already.
    """

    def __init__(self, path: AnyPath, text: Bytes | None = None) -> None:
        self._path, self._text = path, text
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)

    def read(self, begin: int, size: int) -> Bytes:
        """``size`` bytes from ``begin``; valid until the thread reads again."""
        if self._text is not None:
            return self._text[begin : begin + size]
        if len(self._buffer) < size:
            self._buffer = np.empty(size, dtype=np.uint8)
        content, filled = self._buffer[:size], 0
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            while filled < size:
                read_bytes = os.preadv(descriptor, [content.data[filled:]], begin + filled)
                if read_bytes == 0:
                    raise ValueError("the file became shorter while it was read")
                filled += read_bytes
        finally:
            os.close(descriptor)
        return content
