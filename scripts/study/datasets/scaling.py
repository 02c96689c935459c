"""Feature scaling as the CANDLE benchmarks do it; all in place, memory a few rows beside the matrices."""

import numpy as np

ROWS_AT_ONCE = 64


def max_abs_scale(*matrices):
    """Divide each column by its largest absolute value over all ``matrices`` (same columns).

    A column of zeros stays as it is.
    """
    low, high = _range(matrices)
    scale = np.maximum(-low, high)
    scale[scale == 0] = 1
    for matrix in matrices:
        matrix /= scale


def min_max_scale(*matrices):
    """Map each column to 0 to 1 by its smallest and largest value over all ``matrices``; a constant one to 0."""
    low, high = _range(matrices)
    width = high - low
    width[width == 0] = 1
    for matrix in matrices:
        matrix -= low
        matrix /= width


def impute_and_standardize(matrix):
    """Fill each column's missing values with its mean, then take away the mean and divide by the deviation.

    A column with no value at all becomes 0, as does a constant one.
    """
    missing = np.isnan(matrix)
    known = np.maximum((~missing).sum(axis=0), 1)
    mean = (np.where(missing, 0, matrix).sum(axis=0, dtype=np.float64) / known).astype(np.float32)
    matrix -= mean
    matrix[missing] = 0
    deviation = np.sqrt(np.square(matrix, dtype=np.float64).mean(axis=0)).astype(np.float32)
    deviation[deviation == 0] = 1
    matrix /= deviation


def _range(matrices):
    low, high = (np.full(matrices[0].shape[1], value, dtype=np.float32) for value in (np.inf, -np.inf))
    for matrix in matrices:
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[first : first + ROWS_AT_ONCE]
            np.minimum(low, rows.min(axis=0), out=low)
            np.maximum(high, rows.max(axis=0), out=high)
    return low, high
