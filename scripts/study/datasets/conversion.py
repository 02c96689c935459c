"""CSV to one float32 matrix that can be memory-mapped, plus a sidecar that says what it is.

Every value is checked on the way; a file that is not whole or not numeric gives an error that names
file, line and column, and no output.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from study.errors import StudyError
from study.files import write_json, written_aside

CONVERTER_VERSION = 1
VALUES_PER_BLOCK = 4_000_000  # 32 MB as float64
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Expected:
    """What the study knows of a file beforehand. rows and columns are None where only the file tells."""

    label_column: int
    classes: int
    rows: int | None = None
    columns: int | None = None


@dataclass(frozen=True)
class _Source:
    path: Path
    rows: int
    columns: int
    bytes: int
    sha256: str


def convert(source, matrix, sidecar, expected):
    """Convert the CSV file ``source`` into ``matrix`` (``.npy``, float32, C order) and ``sidecar`` (JSON).

    The matrix has the file's rows and columns, label column included, each value as ``read_csv`` gives it,
    rounded to float32. Extra memory: one block of 32 MB and its text. Raises `StudyError` for a file that
    is empty, cut off, ragged, not numeric, not finite, or not of the ``expected`` shape or labels.
    """
    described = _describe(Path(source))
    _check_shape(described, expected)
    with written_aside(matrix) as aside:
        target = np.lib.format.open_memmap(
            aside, mode="w+", dtype=np.float32, shape=(described.rows, described.columns)
        )
        _fill(target, described, expected)
        target.flush()
        del target
    write_json(sidecar, _sidecar(described, expected))


def _sidecar(source, expected):
    return {
        "schema_version": 1,
        "converter_version": CONVERTER_VERSION,
        "shape": [source.rows, source.columns],
        "dtype": "float32",
        "label_column": expected.label_column,
        "classes": expected.classes,
        "source": {"name": source.path.name, "bytes": source.bytes, "sha256": source.sha256},
    }


def _describe(path):
    """Shape, size and checksum in one pass over the lines; refuses a file that is empty, ragged or cut off.

    pandas is not trusted with ragged lines: it fills short ones, and takes a longer one for one with an index.
    """
    digest, rows, size, columns = hashlib.sha256(), 0, 0, None
    try:
        with open(path, "rb") as handle:
            for line in handle:
                digest.update(line)
                rows, size = rows + 1, size + len(line)
                found = line.count(b",") + 1
                columns = columns or found
                if b"\0" in line:
                    column = line[: line.index(b"\0")].count(b",") + 1
                    raise StudyError(
                        f"{path}: line {rows}, column {column}: there is a zero byte; fetch the file again"
                    )
                if line.strip() == b"":
                    raise StudyError(f"{path}: line {rows}, column 1: the line is empty")
                if not line.endswith(b"\n"):
                    raise StudyError(
                        f"{path}: line {rows}, column {found}: the file is cut off: its last line has no end. "
                        "Fetch it again; if it is whole, end it with a line feed"
                    )
                if found != columns:
                    column = min(found, columns + 1)
                    raise StudyError(f"{path}: line {rows}, column {column}: {found} values, but line 1 has {columns}")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    if rows == 0:
        raise StudyError(f"{path}: the file is empty; fetch it again or give the right path")
    return _Source(path, rows, columns, size, digest.hexdigest())


def _check_shape(source, expected):
    for what, found, wanted in (
        ("columns", source.columns, expected.columns),
        ("rows", source.rows, expected.rows),
    ):
        if wanted is not None and found != wanted:
            line = 1 if what == "columns" else source.rows
            raise StudyError(
                f"{source.path}: line {line}: the file has {found} {what}, {wanted} were expected; "
                "is it whole, and the right file for this benchmark and split?"
            )
    if source.columns < 2:
        raise StudyError(f"{source.path}: line 1: there is one column; a label and comma-separated values are expected")
    if expected.label_column >= source.columns:
        raise StudyError(
            f"{source.path}: line 1: there are {source.columns} columns, "
            f"the label is expected in column {expected.label_column + 1}"
        )


def _fill(target, source, expected):
    rows_per_block = max(1, VALUES_PER_BLOCK // source.columns)
    done = 0
    with tqdm(total=source.rows, unit="row", desc=source.path.name, mininterval=1) as progress:
        try:
            blocks = pd.read_csv(
                source.path,
                header=None,
                dtype=np.float64,
                chunksize=rows_per_block,
                low_memory=False,
                skip_blank_lines=False,
                encoding="ascii",
            )
            for block in blocks:
                with np.errstate(over="ignore"):
                    rows = target[done : done + len(block)] = block.to_numpy(dtype=np.float32)
                if not (np.isfinite(rows).all() and _labels_valid(rows[:, expected.label_column], expected)):
                    raise ValueError("a value is not finite or a label is not valid")
                done += len(block)
                progress.update(len(block))
        except (ValueError, IndexError) as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
            fault = _find_fault(source, expected, first_row=done)
            raise StudyError(fault or f"{source.path}: after line {done}: {error}") from None
    if done != source.rows:
        raise StudyError(f"{source.path}: {done} rows were read but the file has {source.rows} lines")


def _labels_valid(labels, expected):
    return ((labels >= 0) & (labels < expected.classes) & (labels == np.floor(labels))).all()


def _find_fault(source, expected, first_row):
    """The first fault at or after ``first_row`` as a message, found value by value; None where there is none."""
    with open(source.path, encoding="ascii", errors="replace", newline="\n") as handle:
        for number, line in enumerate(handle, start=1):
            if number > first_row:
                fault = _line_fault(line.rstrip("\n").removesuffix("\r"), expected)
                if fault:
                    return f"{source.path}: line {number}, {fault}"
    return None


def _line_fault(line, expected):
    values = line.split(",")
    for column, value in enumerate(values, start=1):
        text = value.strip()
        if not NUMBER.fullmatch(text):
            return f"column {column}: {value[:40]!r} is not a finite number"
        if abs(float(text)) > FLOAT32_MAX:
            return f"column {column}: {value[:40]!r} does not fit a 32-bit float"
    label = float(values[expected.label_column])
    if not (label.is_integer() and 0 <= label < expected.classes):
        return (
            f"column {expected.label_column + 1}: the label {values[expected.label_column]!r} "
            f"is not one of 0 to {expected.classes - 1}"
        )
    return None
