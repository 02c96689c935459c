"""Feature scaling as the CANDLE benchmarks do it."""

import numpy as np


def max_abs_scale(*matrices):
    """Divide each column, in place, by its largest absolute value over all ``matrices`` (same columns).

    A column of zeros stays as it is. Memory: one row beside the matrices.
    """
    scale = np.zeros(matrices[0].shape[1], dtype=matrices[0].dtype)
    for matrix in matrices:
        np.maximum(scale, matrix.max(axis=0, initial=0), out=scale)
        np.maximum(scale, -matrix.min(axis=0, initial=0), out=scale)
    scale[scale == 0] = 1
    for matrix in matrices:
        matrix /= scale
