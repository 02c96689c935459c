"""Feature scaling as the CANDLE benchmarks do it: in place, with extra memory of a few rows.

A scaler is fitted either on the loaded tables in every run, as the benchmarks do, or once after the conversion. In the
second case its parameters and the scaled matrix (`write_scaled`) are stored, and the loader ``mapped`` maps the matrix.
The results are bit-identical.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.files import AnyPath, write_aside
from study.data import matrix_file

SCALING_VERSION = 2
ROWS_AT_ONCE = 64

Matrix = NDArray[np.float32]  # or one row of it


@dataclass(frozen=True)
class Scaler:
    """x becomes (x - subtract) / divide, column by column; a missing value becomes 0, which is the mean.

    subtract: float32 (columns,), or None if nothing is subtracted; divide: likewise, without zeros.
    """

    subtract: Matrix | None
    divide: Matrix

    def apply(self, matrix: Matrix) -> None:
        """Scale ``matrix``, float32 (rows, columns), in place."""
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[first : first + ROWS_AT_ONCE]
            if self.subtract is not None:
                rows -= self.subtract
                if np.isnan(rows.sum()):  # faster than finding which ones are missing
                    rows[np.isnan(rows)] = 0
            rows /= self.divide

    def to_parameters(self) -> dict[str, Matrix]:
        """The scaler's arrays by name, for `from_parameters`."""
        return {"divide": self.divide} if self.subtract is None else {"subtract": self.subtract, "divide": self.divide}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Matrix]) -> Self:
        """The scaler with these parameters."""
        return cls(parameters.get("subtract"), parameters["divide"])


def fit_max_abs(*matrices: Matrix) -> Scaler:
    """The scaler that divides each column by its largest absolute value over all ``matrices``; zeros stay zero.

    Raises:
        StudyError: a value is missing.
    """
    low, high = _find_range(matrices)
    scale = np.maximum(-low, high)
    scale[scale == 0] = 1
    return Scaler(None, scale)


def fit_min_max(*matrices: Matrix) -> Scaler:
    """The scaler that maps each column to 0 to 1 by its extremes over all ``matrices``; a constant column to 0.

    Raises:
        StudyError: a value is missing.
    """
    low, high = _find_range(matrices)
    width = high - low
    width[width == 0] = 1
    return Scaler(low, width)


def fit_standard(matrix: Matrix) -> Scaler:
    """The scaler to mean 0 and standard deviation 1 by column, after missing values have become the mean.

    A column without any value, or with a constant one, becomes 0. Memory: several times the matrix.
    """
    missing = np.isnan(matrix)
    present = np.maximum((~missing).sum(axis=0), 1)
    mean = (np.where(missing, 0, matrix).sum(axis=0, dtype=np.float64) / present).astype(np.float32)
    centred = matrix - mean
    centred[missing] = 0
    deviation = np.sqrt(np.square(centred, dtype=np.float64).mean(axis=0)).astype(np.float32)
    deviation[deviation == 0] = 1
    return Scaler(mean, deviation)


def save_scalers(scalers: Mapping[str, Scaler], path: AnyPath) -> None:
    """Write {file: `Scaler`} to ``path`` (.npz)."""
    arrays = {
        f"{file}.{name}": array for file, scaler in scalers.items() for name, array in scaler.to_parameters().items()
    }
    with write_aside(path) as aside, open(aside, "wb") as handle:
        np.savez(handle, **arrays)


def load_scaler(path: AnyPath, file: str) -> Scaler:
    """The `Scaler` of ``file`` in a file of `save_scalers`; raises `StudyError` if there is none."""
    arrays = matrix_file.read_arrays(path)
    parameters = {name.rpartition(".")[2]: array for name, array in arrays.items() if name.rpartition(".")[0] == file}
    kinds = {(array.dtype.str, array.ndim, array.shape) for array in parameters.values()}
    is_scaler = "divide" in parameters and parameters.keys() <= {"subtract", "divide"} and len(kinds) == 1
    if not is_scaler or next(iter(kinds))[:2] != ("<f4", 1):
        raise StudyError(f"{path}: has no scaler of {file}; delete it, and Snakemake makes it again")
    return Scaler.from_parameters(parameters)


def write_scaled(numbers: Matrix, scaler: Scaler, path: AnyPath) -> None:
    """Write ``numbers``, float32 (rows, columns), scaled to ``path`` (.npy, C order)."""
    with write_aside(path) as aside:
        target = matrix_file.create_matrix(aside, numbers.shape)
        for first in range(0, len(numbers), ROWS_AT_ONCE):
            target[first : first + ROWS_AT_ONCE] = numbers[first : first + ROWS_AT_ONCE]
            scaler.apply(target[first : first + ROWS_AT_ONCE])
        target.flush()


def save_codes(codes: Matrix, path: AnyPath) -> None:
    """Write the columns of categories, float32 (rows, columns), to ``path`` (.npy), without the numbers."""
    with write_aside(path) as aside, open(aside, "wb") as handle:
        np.save(handle, np.ascontiguousarray(codes))


def _find_range(matrices: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
    """(smallest, largest) value of each column over all matrices; raises `StudyError` if one is missing."""
    low, high = (np.full(matrices[0].shape[1], value, dtype=np.float32) for value in (np.inf, -np.inf))
    for matrix in matrices:
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[first : first + ROWS_AT_ONCE]
            np.minimum(low, rows.min(axis=0), out=low)
            np.maximum(high, rows.max(axis=0), out=high)
    if len(lacking := np.flatnonzero(np.isnan(low))):
        raise StudyError(
            f"{len(lacking)} of {len(low)} numeric columns have missing values, the first of them is number "
            f"{lacking[0] + 1}; this benchmark's scaling does not fill them: fill them in the files, or drop them"
        )
    return low, high
