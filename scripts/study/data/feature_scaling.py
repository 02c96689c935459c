"""Feature scaling as the CANDLE benchmarks do it; in place, memory a few rows beside the matrices.

A scaler is fitted on the loaded tables in every run, as the benchmarks do, or once after the conversion: then it is
kept with its parameters, and so is what it makes (`prepare`), which the loader ``mapped`` maps. The bits are the same.
"""

from dataclasses import dataclass

import numpy as np

from study.data import matrix_file
from study.core.files import written_aside

SCALING_VERSION = 2
ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Scaler:
    """x becomes (x - subtract) / divide, column by column; a missing value 0, which is the mean.

    subtract: float32 (columns,), or None where nothing is; divide: likewise, without zeros.
    """

    subtract: np.ndarray | None
    divide: np.ndarray

    def apply(self, matrix):
        """Scale ``matrix``, float32 (rows, columns), in place."""
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[first : first + ROWS_AT_ONCE]
            if self.subtract is not None:
                rows -= self.subtract
                if np.isnan(rows.sum()):  # which is quicker to find out than which ones are missing
                    rows[np.isnan(rows)] = 0
            rows /= self.divide

    def parameters(self):
        """What `from_parameters` takes: {name: array}."""
        return {"divide": self.divide} if self.subtract is None else {"subtract": self.subtract, "divide": self.divide}

    @classmethod
    def from_parameters(cls, parameters):
        """The scaler that has them."""
        return cls(parameters.get("subtract"), parameters["divide"])


def max_abs(*matrices):
    """Divides each column by its largest absolute value over all ``matrices`` (same columns); zeros stay."""
    low, high = _range(matrices)
    scale = np.maximum(-low, high)
    scale[scale == 0] = 1
    return Scaler(None, scale)


def min_max(*matrices):
    """Maps each column to 0 to 1 by its smallest and largest value over all ``matrices``; a constant one to 0."""
    low, high = _range(matrices)
    width = high - low
    width[width == 0] = 1
    return Scaler(low, width)


def standard(matrix):
    """Takes away each column's mean and divides by the deviation, after missing values have become the mean.

    A column with no value at all becomes 0, as does a constant one. Memory: some times the matrix.
    """
    missing = np.isnan(matrix)
    known = np.maximum((~missing).sum(axis=0), 1)
    mean = (np.where(missing, 0, matrix).sum(axis=0, dtype=np.float64) / known).astype(np.float32)
    centred = matrix - mean
    centred[missing] = 0
    deviation = np.sqrt(np.square(centred, dtype=np.float64).mean(axis=0)).astype(np.float32)
    deviation[deviation == 0] = 1
    return Scaler(mean, deviation)


def save(scalers, path):
    """Write {file: `Scaler`} to ``path`` (.npz)."""
    arrays = {
        f"{file}.{name}": array for file, scaler in scalers.items() for name, array in scaler.parameters().items()
    }
    with written_aside(path) as aside, open(aside, "wb") as handle:
        np.savez(handle, **arrays)


def saved(path, file):
    """The `Scaler` of ``file`` among those that `save` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        mine = [name for name in arrays.files if name.rpartition(".")[0] == file]
        return Scaler.from_parameters({name.rpartition(".")[2]: arrays[name] for name in mine})


def prepare(numbers, scaler, path):
    """Write ``numbers``, float32 (rows, columns), scaled, to ``path`` (.npy, C order)."""
    with written_aside(path) as aside:
        target = matrix_file.create(aside, numbers.shape)
        for first in range(0, len(numbers), ROWS_AT_ONCE):
            target[first : first + ROWS_AT_ONCE] = numbers[first : first + ROWS_AT_ONCE]
            scaler.apply(target[first : first + ROWS_AT_ONCE])
        target.flush()


def save_codes(codes, path):
    """Write the columns of categories, float32 (rows, columns), to ``path`` (.npy), so that the rest is not needed."""
    with written_aside(path) as aside, open(aside, "wb") as handle:
        np.save(handle, np.ascontiguousarray(codes))


def _range(matrices):
    low, high = (np.full(matrices[0].shape[1], value, dtype=np.float32) for value in (np.inf, -np.inf))
    for matrix in matrices:
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[first : first + ROWS_AT_ONCE]
            np.minimum(low, rows.min(axis=0), out=low)
            np.maximum(high, rows.max(axis=0), out=high)
    return low, high
