"""Convert a CSV file to one float32 matrix that can be memory-mapped, and write a sidecar that describes it.

Every value is checked. A file that is truncated, or that does not match its form, gives an error with file, line and
column, and no output. The file is read once, from begin to end; it is read again only to locate a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from study.core import digests
from study.core.errors import StudyError
from study.core.files import AnyPath, sha256, write_aside, write_sealed
from study.core.lazy import pandas as pd
from study.data import file_changes, matrix_file, source_state, text_file, text_table
from study.data.table_faults import Source, check_last_column, check_names, describe_table, find_fault, suggest_cause
from study.data.tabular import Column, Form

CONVERTER_VERSION = 4
VALUES_PER_BLOCK = 4_000_000  # 32 MB as float64


@dataclass(frozen=True)
class _Converted:
    """The result of a conversion: source, its checksum, values of columns of categories, missing numbers."""

    source: Source
    checksum: str
    categories: list[list[Any]]
    missing: int
    has_plain_numbers: bool = False


def convert(
    source: AnyPath,
    matrix: AnyPath,
    sidecar: AnyPath,
    form: Form,
    rows: int | None = None,
    columns: int | None = None,
    checksum: AnyPath | None = None,
    token: str | None = None,
) -> None:
    """Convert the text table ``source`` into ``matrix`` (``.npy``, float32, C order) and ``sidecar`` (JSON).

    form: `study.data.tabular.Form`; it determines the columns of the matrix. Each number is the float64 nearest to its
    text, rounded to float32; missing numbers are NaN. The sidecar holds the values of each column of categories. rows,
    columns: the expected numbers; a file with others is refused. checksum: a file with the SHA-256 that the source had
    when it was fetched, if there is such a file; a source that was changed since then is refused. token: of
    `study.data.source_state`, for the sidecar. Extra memory: a few
    MB per core, and 4 bytes per row and column of categories. Raises `StudyError` for a file that is empty, truncated,
    ragged, of another shape, or has a value that is not a finite number or an allowed category.
    """
    source = Path(source)
    before = source_state.read_state([str(source)])
    with write_aside(matrix) as aside:
        try:
            text_file.check_kind(source)
            converted = _convert_table(source, aside, form, rows, columns)
            numbers = form.select_numbers(converted.source.names)
            if "" in form.missing:
                check_last_column(source, form, matrix_file.read_matrix(aside, mmap_mode="c"), numbers)
        except StudyError as error:
            if source.is_file():  # a changed one is to be fetched again, whatever is wrong with it now
                file_changes.check_source(source, sha256(source), checksum)
            raise StudyError(f"{error}{suggest_cause(source, form)}") from None
        file_changes.check_source(source, converted.checksum, checksum)
        source_note = source_state.make_note(before, [str(source)], token)
        matrix_checksum = sha256(aside)
    write_sealed(
        sidecar,
        {
            "schema_version": 3,
            **describe_conversion(form),
            "shape": [converted.source.rows, len(form.codes) + len(numbers)],
            "dtype": "float32",
            "sha256": matrix_checksum,
            "codes": [{"column": c, "values": v} for c, v in zip(form.codes, converted.categories, strict=True)],
            "missing_values": converted.missing,
            "has_plain_numbers": converted.has_plain_numbers,
            "columns": [len(numbers), _digest_names(numbers)],
            source_state.NOTE: source_note,
            "source": {"name": source.name, "bytes": converted.source.bytes, "sha256": converted.checksum},
        },
    )


def describe_conversion(form: Form) -> dict[str, Any]:
    """The converter's version and definition, as a table's sidecar has them."""
    read = {name: value for name, value in asdict(form).items() if name != "has_plain_numbers"}  # found in the file
    return {"converter_version": CONVERTER_VERSION, "definition": read}


def _convert_table(path: Path, matrix: Path, form: Form, rows: int | None, columns: int | None) -> _Converted:
    """Convert a table by the parallel reader, or by pandas where that cannot read it."""
    table = _find_readable_columns(path, form)
    if table is None:
        return _convert_by_pandas(path, matrix, form, rows, columns)
    return _convert_stream(path, matrix, form, table, rows, columns)


def _digest_names(names: Sequence[Column]) -> str:
    """Digest of a list of numeric columns; see `study.data.loaders.check_columns`."""
    return digests.shorten_digest(hashlib.sha256("\n".join(map(str, names)).encode()).hexdigest())


def _find_readable_columns(path: Path, form: Form) -> text_table.Columns | None:
    """The columns of a table that `study.data.text_table` can read; None if it cannot, or the table is empty."""
    try:
        with text_file.open_text(path) as handle:
            line = handle.readline()
    except OSError:
        return None  # `describe` reports it
    names = text_table.split_names(line, form)
    table = text_table.find_columns(form, names) if line else None
    if table is not None and form.header:
        check_names(path, names)
    return table


def _convert_stream(
    path: Path, matrix: Path, form: Form, table: text_table.Columns, rows: int | None, columns: int | None
) -> _Converted:
    """Convert a table by `study.data.text_table`; its faults are then located line by line."""
    _check_shape(Source(path, table.names, 0, 0), form, None, columns)
    stream = text_table.Stream(path, form, table, check=lambda numbers: _count_missing(numbers, form))
    missing, are_plain = 0, True
    size = path.stat().st_size
    with (
        matrix_file.RowWriter(matrix, table.categories + table.numbers) as target,
        tqdm(total=size, unit="B", unit_scale=True, desc=path.name, mininterval=1) as progress,
    ):
        try:
            for block in stream.blocks():
                target.append(block.rows)
                missing += block.missing
                are_plain &= block.has_plain_numbers
                progress.update(stream.size - progress.n)
        except text_table.BlockError as error:
            raise _locate_fault(path, form, error.first_row, str(error)) from None
        source = Source(path, table.names, stream.rows, stream.size)
        if not stream.rows:
            describe_table(path, form)  # raises
        _check_shape(source, form, rows, columns)
    codes = [_Codes(allowed, form) for allowed in form.values]
    with matrix_file.open_matrix(matrix) as filled:
        for index, (column, code) in enumerate(zip(stream.categories, codes, strict=True)):
            try:
                places = code.add(column.series(form.codes[index], form.values[index]))
            except ValueError as error:
                raise _locate_fault(path, form, 0, str(error)) from None
            column.write(filled[:, index], places if code.order is None else code.order[places])
    return _Converted(source, stream.checksum, [code.values for code in codes], missing, are_plain)


def _locate_fault(path: Path, form: Form, first_row: int, message: str) -> StudyError:
    """The error, with line and column, for a fault at or after ``first_row``."""
    source = describe_table(path, form)
    return StudyError(find_fault(source, form, first_row) or f"{path}: after row {first_row}: {message}")


def _convert_by_pandas(path: Path, matrix: Path, form: Form, rows: int | None, columns: int | None) -> _Converted:
    """Convert any table, in blocks of rows read by pandas."""
    source = describe_table(path, form)
    _check_shape(source, form, rows, columns)
    numbers = form.select_numbers(source.names)
    target = matrix_file.create_matrix(matrix, (source.rows, len(form.codes) + len(numbers)))
    with tqdm(total=source.rows, unit="row", desc=path.name, mininterval=1) as progress:
        categories, missing = _fill_matrix(target, source, form, numbers, progress)
    target.flush()
    return _Converted(source, sha256(path), categories, missing, text_table.has_plain_numbers(path, form))


def _check_shape(source: Source, form: Form, rows: int | None, columns: int | None) -> None:
    """Raise `StudyError` unless a table has the expected rows and columns and all columns of its form."""
    for axis, number, expected in (("columns", len(source.names), columns), ("rows", source.rows, rows)):
        if expected is not None and number != expected:
            line = 1 if axis == "columns" else source.rows + form.header
            raise StudyError(
                f"{source.path}: line {line}: the file has {number} {axis}, {expected} were expected; "
                "is it whole, and the right file for this benchmark and split?"
            )
    for column in [*form.codes, *form.drop, *(form.keep or ())]:
        if column not in source.names:
            present_columns = f"there are {len(source.names)} columns"
            if form.header:
                present_columns += f", the first are {', '.join(map(repr, source.names[:5]))}"
            named = repr(column) if isinstance(column, str) else column + 1
            raise StudyError(f"{source.path}: line 1: there is no column {named}: {present_columns}")
    if form.keep is None and not form.select_numbers(source.names):
        axis = "one column" if len(source.names) == 1 else "no column of numbers"
        raise StudyError(f"{source.path}: line 1: there is {axis}; numbers with a separator are expected")


def _fill_matrix(
    target: NDArray[np.float32], source: Source, form: Form, numbers: list[Column], progress: tqdm
) -> tuple[list[list[Any]], int]:
    """Write all rows into ``target``; returns each code column's values and the number of missing numbers."""
    rows_per_block = max(1, VALUES_PER_BLOCK // len(source.names))
    codes = [_Codes(values, form) for values in form.values]
    filled = missing = 0
    try:
        for block in _read_blocks(source, form, numbers, rows_per_block):
            rows = target[filled : filled + len(block)]
            for index, (column, code) in enumerate(zip(form.codes, codes, strict=True)):
                rows[:, index] = code.add(block[column])
            with np.errstate(over="ignore"):
                rows[:, len(codes) :] = block[numbers].to_numpy(dtype=np.float32)
            form.mark_missing(rows[:, len(codes) :])
            missing += _count_missing(rows[:, len(codes) :], form)
            filled += len(block)
            progress.update(len(block))
    except (ValueError, IndexError) as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
        fault = find_fault(source, form, first_row=filled)
        raise StudyError(fault or f"{source.path}: after row {filled}: {error}") from None
    if filled != source.rows:
        raise StudyError(f"{source.path}: {filled} rows were read but the file has {source.rows}")
    for index, code in enumerate(codes):
        if code.order is not None:
            target[:, index] = code.order[target[:, index].astype(np.int64)]
    return [code.values for code in codes], missing


def _read_blocks(source: Source, form: Form, numbers: list[Column], rows: int) -> Iterator[pd.DataFrame]:
    """Yield blocks of rows, read by pandas."""
    wanted = {*form.codes, *numbers}
    usecols: Any = None
    if len(wanted) < len(source.names):  # pandas asks no function about the columns of a table without a header
        usecols = (lambda name: name in wanted) if form.header else list(wanted)
    return pd.read_csv(
        source.path,
        **form.build_reading_options(),
        compression="gzip" if text_file.is_compressed(source.path) else None,
        usecols=usecols,
        chunksize=rows,
        low_memory=False,
        skip_blank_lines=False,
        encoding="ascii",
    )


class _Codes:
    """Turns one column of categories into positions, block by block; text is sorted once all values are known."""

    def __init__(self, values: Sequence[int] | None, form: Form) -> None:
        self._form = form
        self._given = None if values is None else pd.Index(values)
        self._seen: dict[str, int] = {}

    def add(self, column: pd.Series) -> NDArray[np.int64]:
        """Positions of the values of ``column``; for text in the order of appearance, see ``order``."""
        if self._given is not None:
            positions = self._given.get_indexer(column)
            if (positions < 0).any() or any(self._form.is_missing(str(value)) for value in column.unique()):
                raise ValueError("a category is not one of the allowed values")
            return positions
        places, names = pd.factorize(column)
        if (places < 0).any() or any(not name or self._form.is_missing(name) for name in names):
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


def _count_missing(values: NDArray[np.float32], form: Form) -> int:
    """Number of missing values; raises ValueError if one is infinite, or missing without permission."""
    missing = int(np.isnan(values).sum())
    if (missing and not form.missing) or np.isinf(values).any():
        raise ValueError("a value is not finite")
    return missing
