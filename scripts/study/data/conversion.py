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
from study.core.files import AnyPath, sha256, write_sealed, written_aside
from study.core.lazy import pandas as pd
from study.data import matrix_file, source_state, text_file, text_table, unchanged
from study.data.table_faults import Source, check_names, describe, find_fault, hint
from study.data.tabular import Column, Form

CONVERTER_VERSION = 4
VALUES_PER_BLOCK = 4_000_000  # 32 MB as float64


@dataclass(frozen=True)
class _Converted:
    """What was converted: the file, its checksum, the lists of values of the columns of categories, missing numbers."""

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
    before = source_state.state([str(source)])
    with written_aside(matrix) as aside:
        try:
            text_file.check_kind(source)
            done = _convert(source, aside, form, rows, columns)
        except StudyError as error:
            if source.is_file():  # a changed one is to be fetched again, whatever is wrong with it now
                unchanged.check_source(source, sha256(source), checksum)
            raise StudyError(f"{error}{hint(source, form)}") from None
        unchanged.check_source(source, done.checksum, checksum)
        noted = source_state.note(before, [str(source)], token)
        of_matrix = sha256(aside)
    numbers = form.numbers(done.source.names)
    write_sealed(
        sidecar,
        {
            "schema_version": 3,
            **describe_conversion(form),
            "shape": [done.source.rows, len(form.codes) + len(numbers)],
            "dtype": "float32",
            "sha256": of_matrix,
            "codes": [{"column": c, "values": v} for c, v in zip(form.codes, done.categories, strict=True)],
            "missing_values": done.missing,
            "has_plain_numbers": done.has_plain_numbers,
            "columns": [len(numbers), _digest(numbers)],
            source_state.NOTE: noted,
            "source": {"name": source.name, "bytes": done.source.bytes, "sha256": done.checksum},
        },
    )


def describe_conversion(form: Form) -> dict[str, Any]:
    """What the sidecar of a table says of how it was converted: the converter's version, and all that it reads."""
    read = {name: value for name, value in asdict(form).items() if name != "has_plain_numbers"}  # found in the file
    return {"converter_version": CONVERTER_VERSION, "definition": read}


def _convert(path: Path, matrix: Path, form: Form, rows: int | None, columns: int | None) -> _Converted:
    table = _readable(path, form)
    if table is None:
        return _convert_by_pandas(path, matrix, form, rows, columns)
    return _convert_stream(path, matrix, form, table, rows, columns)


def _digest(names: Sequence[Column]) -> str:
    """Digest that identifies a list of numeric columns; see `study.data.loaders.check_columns`."""
    return digests.short(hashlib.sha256("\n".join(map(str, names)).encode()).hexdigest())


def _readable(path: Path, form: Form) -> text_table.Columns | None:
    """The columns of the table in ``path``; None if `study.data.text_table` cannot read it, or it is empty."""
    try:
        with text_file.opened(path) as handle:
            line = handle.readline()
    except OSError:
        return None  # `describe` reports it
    names = text_table.names_in(line, form)
    table = text_table.columns(form, names) if line else None
    if table is not None and form.header:
        check_names(path, names)
    return table


def _convert_stream(
    path: Path, matrix: Path, form: Form, table: text_table.Columns, rows: int | None, columns: int | None
) -> _Converted:
    """Convert a table that `study.data.text_table` reads; its faults are then located line by line."""
    _check_shape(Source(path, table.names, 0, 0), form, None, columns)
    stream = text_table.Stream(path, form, table, check=lambda numbers: _missing(numbers, form))
    missing, are_plain = 0, True
    size = path.stat().st_size
    with (
        matrix_file.Rows(matrix, table.categories + table.numbers) as target,
        tqdm(total=size, unit="B", unit_scale=True, desc=path.name, mininterval=1) as progress,
    ):
        try:
            for block in stream.blocks():
                target.append(block.rows)
                missing += block.missing
                are_plain &= block.has_plain_numbers
                progress.update(stream.size - progress.n)
        except text_table.BlockError as error:
            raise _located(path, form, error.first_row, str(error)) from None
        source = Source(path, table.names, stream.rows, stream.size)
        if not stream.rows:
            describe(path, form)  # raises
        _check_shape(source, form, rows, columns)
    codes = [_Codes(allowed, form) for allowed in form.values]
    with matrix_file.opened(matrix) as filled:
        for index, (found, code) in enumerate(zip(stream.categories, codes, strict=True)):
            try:
                places = code.add(found.series(form.codes[index], form.values[index]))
            except ValueError as error:
                raise _located(path, form, 0, str(error)) from None
            found.write(filled[:, index], places if code.order is None else code.order[places])
    return _Converted(source, stream.checksum, [code.values for code in codes], missing, are_plain)


def _located(path: Path, form: Form, first_row: int, message: str) -> StudyError:
    """The error for a fault at or after ``first_row``, with its line and column."""
    source = describe(path, form)
    return StudyError(find_fault(source, form, first_row) or f"{path}: after row {first_row}: {message}")


def _convert_by_pandas(path: Path, matrix: Path, form: Form, rows: int | None, columns: int | None) -> _Converted:
    """Convert any table, in blocks of rows that pandas reads."""
    source = describe(path, form)
    _check_shape(source, form, rows, columns)
    numbers = form.numbers(source.names)
    target = matrix_file.create(matrix, (source.rows, len(form.codes) + len(numbers)))
    with tqdm(total=source.rows, unit="row", desc=path.name, mininterval=1) as progress:
        categories, missing = _fill(target, source, form, numbers, progress)
    target.flush()
    return _Converted(source, sha256(path), categories, missing, text_table.has_plain_numbers(path, form))


def _check_shape(source: Source, form: Form, rows: int | None, columns: int | None) -> None:
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
    target: NDArray[np.float32], source: Source, form: Form, numbers: list[Column], progress: tqdm
) -> tuple[list[list[Any]], int]:
    """Write all rows into ``target``; returns the values of each code column and the number of missing numbers."""
    rows_per_block = max(1, VALUES_PER_BLOCK // len(source.names))
    codes = [_Codes(values, form) for values in form.values]
    done = missing = 0
    try:
        for block in _blocks(source, form, numbers, rows_per_block):
            rows = target[done : done + len(block)]
            for index, (column, code) in enumerate(zip(form.codes, codes, strict=True)):
                rows[:, index] = code.add(block[column])
            with np.errstate(over="ignore"):
                rows[:, len(codes) :] = block[numbers].to_numpy(dtype=np.float32)
            form.mark_missing(rows[:, len(codes) :])
            missing += _missing(rows[:, len(codes) :], form)
            done += len(block)
            progress.update(len(block))
    except (ValueError, IndexError) as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
        fault = find_fault(source, form, first_row=done)
        raise StudyError(fault or f"{source.path}: after row {done}: {error}") from None
    if done != source.rows:
        raise StudyError(f"{source.path}: {done} rows were read but the file has {source.rows}")
    for index, code in enumerate(codes):
        if code.order is not None:
            target[:, index] = code.order[target[:, index].astype(np.int64)]
    return [code.values for code in codes], missing


def _blocks(source: Source, form: Form, numbers: list[Column], rows: int) -> Iterator[pd.DataFrame]:
    wanted = {*form.codes, *numbers}
    usecols: Any = None
    if len(wanted) < len(source.names):  # pandas asks no function about the columns of a table without a header
        usecols = (lambda name: name in wanted) if form.header else list(wanted)
    return pd.read_csv(
        source.path,
        **form.reading_options(),
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
            found = self._given.get_indexer(column)
            if (found < 0).any() or any(self._form.is_missing(str(value)) for value in column.unique()):
                raise ValueError("a category is not one of the allowed values")
            return found
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


def _missing(values: NDArray[np.float32], form: Form) -> int:
    """The number of missing values; raises ValueError for one that is not finite, or missing without permission."""
    missing = int(np.isnan(values).sum())
    if (missing and not form.missing) or np.isinf(values).any():
        raise ValueError("a value is not finite")
    return missing
