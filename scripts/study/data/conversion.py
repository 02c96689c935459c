"""Convert a CSV file to one float32 matrix that can be memory-mapped, and write a sidecar that describes it.

Every value is checked. A file that is truncated, or that does not match its form, gives an error with file, line and
column, and no output.
"""

import contextlib
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from study.core.errors import StudyError
from study.core.files import AnyPath, sha256, write_json, written_aside
from study.data import matrix_file, wide
from study.data.tabular import Column, Form

CONVERTER_VERSION = 4
VALUES_PER_BLOCK = 4_000_000  # 32 MB as float64
BOOLEAN = re.compile(rb"true|false", re.IGNORECASE)  # pandas reads these as 1 and 0
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class _Source:
    path: Path
    names: Sequence[Column]  # of all columns; numbers if the file has no header
    rows: int
    bytes: int


def convert(
    source: AnyPath, matrix: AnyPath, sidecar: AnyPath, form: Form, rows: int | None = None, columns: int | None = None
) -> None:
    """Convert the text table ``source`` into ``matrix`` (``.npy``, float32, C order) and ``sidecar`` (JSON).

    form: `study.data.tabular.Form`; it determines the columns of the matrix. Each number is the one that ``read_csv``
    gives, rounded to float32; missing numbers are NaN. The sidecar holds the list of values of each column of
    categories. rows, columns: the expected numbers; a file with others is refused. Extra memory: one block of 32 MB and
    its text; for a wide table a few MB per core (see `study.data.wide`). Raises `StudyError` for a file that is empty,
    truncated, ragged, of another shape, or has a value that is not a finite number or an allowed category.
    """
    source = Path(source)
    with ThreadPoolExecutor(1) as beside:
        checksum = beside.submit(_checksum, source)
        table = _wide_table(source, form)
        described = _describe(source, form) if table is None else table.described
        _check_shape(described, form, rows, columns)
        numbers = form.numbers(described.names)
        shape = (described.rows, len(form.codes) + len(numbers))
        with written_aside(matrix) as aside:
            target = matrix_file.create(aside, shape)
            with tqdm(total=described.rows, unit="row", desc=source.name, mininterval=1) as progress:
                if table is None:
                    categories, missing = _fill(target, described, form, numbers, progress)
                else:
                    categories, missing = _fill_wide(target, table, form, progress)
            target.flush()
            del target
    write_json(
        sidecar,
        {
            "schema_version": 3,
            "converter_version": CONVERTER_VERSION,
            "shape": list(shape),
            "dtype": "float32",
            "codes": [{"column": c, "values": v} for c, v in zip(form.codes, categories, strict=True)],
            "missing_values": missing,
            "columns": [len(numbers), _digest(numbers)],
            "source": {"name": source.name, "bytes": described.bytes, "sha256": checksum.result()},
        },
    )


def _digest(names: Sequence[Column]) -> str:
    """Digest that identifies a list of numeric columns; see `study.data.loaders.check_columns`."""
    return hashlib.sha256("\n".join(map(str, names)).encode()).hexdigest()[:12]


def _checksum(path: Path) -> str | None:
    with contextlib.suppress(OSError):  # `_describe` reports it
        return sha256(path)
    return None


@dataclass(frozen=True)
class _Wide:
    """A table that is parsed by `study.data.wide`."""

    described: _Source
    layout: wide.Layout


def _wide_table(path: Path, form: Form) -> _Wide | None:
    """The `_Wide` table in ``path``; None if it is not one, or if reading it line by line will find a fault in it."""
    try:
        names = wide.column_names(path, form)
        leading = wide.leading_columns(form, names)
        if leading is None:
            return None
        if form.header:
            _check_names(path, names)
        layout = wide.layout(path, form, leading, len(names))
    except (OSError, ValueError):
        return None
    if layout.rows == 0 or not layout.is_whole:
        return None
    return _Wide(_Source(path, names, layout.rows, layout.size), layout)


def _fill_wide(target: NDArray[np.float32], table: _Wide, form: Form, progress: tqdm) -> tuple[list[list[Any]], int]:
    """Like `_fill`, in parallel; a fault that `study.data.wide` reports is then located line by line."""
    source, missing = table.described, 0
    values = target[:, len(form.codes) :]

    def check(first: int, last: int) -> None:
        nonlocal missing
        try:
            missing += _missing(values[first:last], form)
        except ValueError as error:
            raise wide.BlockError(str(error), first) from None
        progress.update(last - first)

    try:
        texts = wide.fill(values, table.layout, form, check)
    except wide.BlockError as error:
        _describe(source.path, form)
        fault = _find_fault(source, form, first_row=error.first_row)
        raise StudyError(fault or f"{source.path}: after row {error.first_row}: {error}") from None
    columns = wide.code_columns(form, source.names, texts)
    codes = [_Codes(allowed) for allowed in form.values]
    for index, (column, code) in enumerate(zip(columns, codes, strict=True)):
        try:
            found = code.add(column)
        except ValueError as error:
            fault = _find_fault(source, form, first_row=0)
            raise StudyError(fault or f"{source.path}: {error}") from None
        target[:, index] = found if code.order is None else code.order[found]
    return [code.values for code in codes], missing


def _describe(path: Path, form: Form) -> _Source:
    """Names, rows and size, in one pass over the lines; refuses a file that is empty, ragged or truncated.

    pandas does not detect ragged lines: it fills short ones, and takes the first value of a longer one as an index.
    """
    lines, size, columns = 0, 0, 0
    names: Sequence[Column] = ()
    separator = form.separator.encode()
    try:
        with open(path, "rb") as handle:
            for line in handle:
                lines, size = lines + 1, size + len(line)
                found = line.count(separator) + 1
                if lines == 1:
                    columns = found
                    names = wide.names_in(line, form)
                _check_line(path, lines, line, found, columns, separator)
                if b'"' in line and not (form.header and lines == 1):
                    _refuse_quotes(path, lines, line, separator)
                if BOOLEAN.search(line) and not (form.header and lines == 1):
                    _refuse_faults(path, lines, line, names, form)
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    if form.header and names:
        _check_names(path, names)
    rows = lines - form.header
    if rows <= 0:
        what = "has no line after its header" if lines else "is empty"
        raise StudyError(f"{path}: the file {what}; fetch it again or give the right path")
    return _Source(path, names, rows, size)


def _check_line(path: Path, number: int, line: bytes, found: int, columns: int, separator: bytes) -> None:
    if b"\0" in line:
        column = line[: line.index(b"\0")].count(separator) + 1
        raise StudyError(f"{path}: line {number}, column {column}: there is a zero byte; fetch the file again")
    if b"\r" in line[:-2] or line[-1:] == b"\r":
        column = line[: line.index(b"\r")].count(separator) + 1
        raise StudyError(f"{path}: line {number}, column {column}: there is a carriage return within the line")
    if line.strip(b"\r\n ") == b"":
        raise StudyError(f"{path}: line {number}, column 1: the line is empty")
    if not line.endswith(b"\n"):
        raise StudyError(
            f"{path}: line {number}, column {found}: the file is cut off: its last line has no end. "
            "Fetch it again; if it is whole, end it with a line feed"
        )
    if found != columns:
        column = min(found, columns + 1)
        raise StudyError(f"{path}: line {number}, column {column}: {found} values, but line 1 has {columns}")


def _refuse_quotes(path: Path, number: int, line: bytes, separator: bytes) -> None:
    """Refuse quotes: a quoted value may contain the separator, and columns could not be counted."""
    column = line[: line.index(b'"')].count(separator) + 1
    value = line.split(separator)[column - 1].decode("ascii", errors="replace").strip()
    raise StudyError(
        f"{path}: line {number}, column {column}: {value[:40]!r} has a quote or is not ASCII; write it plain"
    )


def _refuse_faults(path: Path, number: int, line: bytes, names: Sequence[Column], form: Form) -> None:
    """Check each value of a line."""
    fault = _fault_in(line.decode("ascii", errors="replace"), _kinds(names, form), form)
    if fault:
        raise StudyError(f"{path}: line {number}, {fault}")


def _check_names(path: Path, names: Sequence[Any]) -> None:
    """Column names must be unique: pandas would rename a duplicate, and not every loader does it in the same way."""
    if names[0].startswith("\ufffd") or any('"' in name for name in names):
        raise StudyError(f"{path}: line 1: quotes or a byte order mark in the header; write the names plain, in ASCII")
    seen = set()
    for column, name in enumerate(names, start=1):
        if name == "" or name in seen:
            what = "has no name" if name == "" else f"is named {name!r} as an earlier one is"
            raise StudyError(f"{path}: line 1, column {column}: the column {what}; each needs a name of its own")
        seen.add(name)


def _check_shape(source: _Source, form: Form, rows: int | None, columns: int | None) -> None:
    for what, found, wanted in (("columns", len(source.names), columns), ("rows", source.rows, rows)):
        if wanted is not None and found != wanted:
            line = 1 if what == "columns" else source.rows + form.header
            raise StudyError(
                f"{source.path}: line {line}: the file has {found} {what}, {wanted} were expected; "
                "is it whole, and the right file for this benchmark and split?"
            )
    for column in [*form.codes, *form.drop, *(form.keep or ())]:
        if column not in source.names:
            known = f"there are {len(source.names)} columns"
            if form.header:
                known += f", the first are {', '.join(map(repr, source.names[:5]))}"
            named = repr(column) if isinstance(column, str) else column + 1
            raise StudyError(f"{source.path}: line 1: there is no column {named}: {known}")
    if form.keep is None and not form.numbers(source.names):
        what = "one column" if len(source.names) == 1 else "no column of numbers"
        raise StudyError(f"{source.path}: line 1: there is {what}; numbers with a separator are expected")


def _fill(
    target: NDArray[np.float32], source: _Source, form: Form, numbers: list[Column], progress: tqdm
) -> tuple[list[list[Any]], int]:
    """Write all rows into ``target``; returns the values of each code column and the number of missing numbers."""
    rows_per_block = max(1, VALUES_PER_BLOCK // len(source.names))
    codes = [_Codes(values) for values in form.values]
    done = missing = 0
    try:
        for block in _blocks(source, form, numbers, rows_per_block):
            rows = target[done : done + len(block)]
            for index, (column, code) in enumerate(zip(form.codes, codes, strict=True)):
                rows[:, index] = code.add(block[column])
            with np.errstate(over="ignore"):
                rows[:, len(codes) :] = block[numbers].to_numpy(dtype=np.float32)
            missing += _missing(rows[:, len(codes) :], form)
            done += len(block)
            progress.update(len(block))
    except (ValueError, IndexError) as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
        fault = _find_fault(source, form, first_row=done)
        raise StudyError(fault or f"{source.path}: after row {done}: {error}") from None
    if done != source.rows:
        raise StudyError(f"{source.path}: {done} rows were read but the file has {source.rows}")
    for index, code in enumerate(codes):
        if code.order is not None:
            target[:, index] = code.order[target[:, index].astype(np.int64)]
    return [code.values for code in codes], missing


def _blocks(source: _Source, form: Form, numbers: list[Column], rows: int) -> Iterator[pd.DataFrame]:
    wanted = {*form.codes, *numbers}
    return pd.read_csv(
        source.path,
        **form.reading_options(np.float64),
        usecols=None if len(wanted) == len(source.names) else lambda name: name in wanted,
        chunksize=rows,
        low_memory=False,
        skip_blank_lines=False,
        encoding="ascii",
    )


class _Codes:
    """Turns one column of categories into positions, block by block; text is sorted once all values are known."""

    def __init__(self, values: Sequence[int] | None) -> None:
        self._given = None if values is None else pd.Index(values)
        self._seen: dict[str, int] = {}

    def add(self, column: pd.Series) -> NDArray[np.int64]:
        """Positions of the values of ``column``; for text in the order of appearance, see ``order``."""
        if self._given is not None:
            found = self._given.get_indexer(column)
            if (found < 0).any():
                raise ValueError("a category is not one of the allowed values")
            return found
        places, names = pd.factorize(column)
        if (places < 0).any() or "" in names:
            raise ValueError("a category is missing")
        return np.array([self._seen.setdefault(name, len(self._seen)) for name in names])[places]

    @property
    def values(self) -> list[Any]:
        """The list of values that the positions refer to."""
        return sorted(self._seen) if self._given is None else self._given.tolist()

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The final position for each position by order of appearance; None if positions are final already."""
        if self._given is not None:
            return None
        place = {name: index for index, name in enumerate(self.values)}
        return np.array([place[name] for name in self._seen])


def _missing(values: NDArray[np.float32], form: Form) -> int:
    """The number of missing values; raises ValueError for one that is not finite, or missing without permission."""
    missing = int(np.isnan(values).sum())
    if (missing and not form.missing) or np.isinf(values).any():
        raise ValueError("a value is not finite")
    return missing


def _find_fault(source: _Source, form: Form, first_row: int) -> str | None:
    """The first fault at or after ``first_row`` as a message, found value by value; None if there is none."""
    kinds = _kinds(source.names, form)
    with open(source.path, encoding="ascii", errors="replace", newline="\n") as handle:
        for number, line in enumerate(handle, start=1 - form.header):
            if number > first_row:
                fault = _fault_in(line, kinds, form)
                if fault:
                    return f"{source.path}: line {number + form.header}, {fault}"
    return None


def _kinds(names: Sequence[Column], form: Form) -> list[tuple[Column, str]]:
    return [(name, form.kind(name)) for name in names]


def _fault_in(line: str, kinds: list[tuple[Column, str]], form: Form) -> str | None:
    """The first fault among a line's values, with its column, or None."""
    values = line.rstrip("\n").removesuffix("\r").split(form.separator)
    for column, (value, (name, kind)) in enumerate(zip(values, kinds, strict=True), start=1):
        fault = _fault(value, name, kind, form)
        if fault:
            return f"column {column}: {fault}"
    return None


def _fault(value: str, name: Column, kind: str, form: Form) -> str | None:
    """What is wrong with one value, or None."""
    if '"' in value or "\ufffd" in value:
        return f"{value[:40]!r} has a quote or is not ASCII; write it plain"
    if kind == "left out" or (kind == "number" and value in form.missing):
        return None
    if kind == "code":
        allowed = form.values[form.codes.index(name)]
        if allowed is None:
            return None if value and value not in form.missing else f"the category is {value[:40]!r}"
        good = NUMBER.fullmatch(value.strip(" \t")) and float(value) in allowed
        return None if good else f"the label {value[:40]!r} is not one of {', '.join(map(str, allowed))}"
    if not NUMBER.fullmatch(value.strip(" \t")) or not math.isfinite(float(value)):
        return f"{value[:40]!r} is not a finite number"
    return f"{value[:40]!r} does not fit a 32-bit float" if abs(float(value)) > FLOAT32_MAX else None
