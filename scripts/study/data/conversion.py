"""CSV to one float32 matrix that can be memory-mapped, plus a sidecar that says what it is.

Every value is checked on the way; a file that is not whole or not as its form says gives an error that names
file, line and column, and no output.
"""

import contextlib
import hashlib
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from study.data import matrix_file, wide
from study.core.errors import StudyError
from study.core.files import sha256, write_json, written_aside

CONVERTER_VERSION = 4
VALUES_PER_BLOCK = 4_000_000  # 32 MB as float64
BOOLEAN = re.compile(rb"true|false", re.IGNORECASE)  # which pandas takes for 1 and 0
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class _Source:
    path: Path
    names: list  # of all columns; their numbers where the file has no header
    rows: int
    bytes: int


def convert(source, matrix, sidecar, form, rows=None, columns=None):
    """Convert the text table ``source`` into ``matrix`` (``.npy``, float32, C order) and ``sidecar`` (JSON).

    form: `study.data.tabular.Form`; it says what the matrix has. Each number is as ``read_csv`` gives it, rounded
    to float32; missing ones are NaN. The sidecar has the lists of values of the columns of categories. rows, columns:
    refuse a file with others. Extra memory: one block of 32 MB and its text, a few MB a core for a wide table (see
    `study.data.wide`). Raises `StudyError` for a file that is empty, cut off, ragged, of another shape, or has a
    value that is not a finite number or an allowed category.
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


def _digest(names):
    """Tells one list of numeric columns from another; see `study.data.loaders.check_columns`."""
    return hashlib.sha256("\n".join(map(str, names)).encode()).hexdigest()[:12]


def _checksum(path):
    with contextlib.suppress(OSError):  # which is told by who describes it
        return sha256(path)


@dataclass(frozen=True)
class _Wide:
    """A table that is parsed by `study.data.wide`."""

    described: _Source
    layout: wide.Layout


def _wide_table(path, form):
    """The `_Wide` table in ``path``; None where it is another, or one line by line will find a fault in it."""
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


def _fill_wide(target, table, form, progress):
    """As `_fill`, in parallel; what `study.data.wide` refuses is looked up line by line."""
    source, missing = table.described, 0
    values = target[:, len(form.codes) :]

    def check(first, last):
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


def _describe(path, form):
    """Names, rows and size in one pass over the lines; refuses what is empty, ragged or cut off.

    pandas is not trusted with ragged lines: it fills short ones, and takes a longer one for one with an index.
    """
    lines, size, columns, names = 0, 0, None, None
    separator = form.separator.encode()
    try:
        with open(path, "rb") as handle:
            for line in handle:
                lines, size = lines + 1, size + len(line)
                found = line.count(separator) + 1
                if columns is None:
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


def _check_line(path, number, line, found, columns, separator):
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


def _refuse_quotes(path, number, line, separator):
    """A quoted value may hold the separator, so that columns could no longer be counted."""
    column = line[: line.index(b'"')].count(separator) + 1
    value = line.split(separator)[column - 1].decode("ascii", errors="replace").strip()
    raise StudyError(
        f"{path}: line {number}, column {column}: {value[:40]!r} has a quote or is not ASCII; write it plain"
    )


def _refuse_faults(path, number, line, names, form):
    """Look at each value of a line."""
    fault = _fault_in(line.decode("ascii", errors="replace"), _kinds(names, form), form)
    if fault:
        raise StudyError(f"{path}: line {number}, {fault}")


def _check_names(path, names):
    """Column names must tell columns apart: pandas would rename a second one, and each loader in its own way."""
    if names[0].startswith("\ufffd") or any('"' in name for name in names):
        raise StudyError(f"{path}: line 1: quotes or a byte order mark in the header; write the names plain, in ASCII")
    seen = set()
    for column, name in enumerate(names, start=1):
        if name == "" or name in seen:
            what = "has no name" if name == "" else f"is named {name!r} as an earlier one is"
            raise StudyError(f"{path}: line 1, column {column}: the column {what}; each needs a name of its own")
        seen.add(name)


def _check_shape(source, form, rows, columns):
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


def _fill(target, source, form, numbers, progress):
    """Write all rows into ``target``; returns each code column's list of values and the count of missing numbers."""
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


def _blocks(source, form, numbers, rows):
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
    """Turns one column of categories into positions, block by block; text is put in order when all is known."""

    def __init__(self, values):
        self._given = None if values is None else pd.Index(values)
        self._seen = {}

    def add(self, column):
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
    def values(self):
        """The list of values that positions are positions in."""
        return sorted(self._seen) if self._given is None else self._given.tolist()

    @property
    def order(self):
        """Final position by order of appearance, or None where positions are final already."""
        if self._given is not None:
            return None
        place = {name: index for index, name in enumerate(self.values)}
        return np.array([place[name] for name in self._seen])


def _missing(values, form):
    """The number of missing values; raises ValueError for one that is not finite, or missing where none may be."""
    missing = int(np.isnan(values).sum())
    if (missing and not form.missing) or np.isinf(values).any():
        raise ValueError("a value is not finite")
    return missing


def _find_fault(source, form, first_row):
    """The first fault at or after ``first_row`` as a message, found value by value; None where there is none."""
    kinds = _kinds(source.names, form)
    with open(source.path, encoding="ascii", errors="replace", newline="\n") as handle:
        for number, line in enumerate(handle, start=1 - form.header):
            if number > first_row:
                fault = _fault_in(line, kinds, form)
                if fault:
                    return f"{source.path}: line {number + form.header}, {fault}"
    return None


def _kinds(names, form):
    return [(name, form.kind(name)) for name in names]


def _fault_in(line, kinds, form):
    """The first fault among a line's values, with its column, or None."""
    values = line.rstrip("\n").removesuffix("\r").split(form.separator)
    for column, (value, (name, kind)) in enumerate(zip(values, kinds, strict=True), start=1):
        fault = _fault(value, name, kind, form)
        if fault:
            return f"column {column}: {fault}"
    return None


def _fault(value, name, kind, form):
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
