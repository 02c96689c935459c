"""The ways to get a dataset's matrix into memory; each returns bit-identical arrays.

A loader takes a path and returns float32 of shape (rows, columns), label column included.
"""

import numpy as np
import pandas as pd

CHUNK_ROWS = 2_000_000  # ``csize`` in the paper's listing: rows, although its text speaks of 16 MB


def read_csv(path):
    """The benchmarks' original call (icpp2019, section 5, first listing)."""
    return pd.read_csv(path, header=None).to_numpy().astype(np.float32)


def chunked(path):
    """The paper's improved call: chunks with ``low_memory=False`` (icpp2019, section 5, second listing)."""
    chunks = []
    for chunk in pd.read_csv(path, header=None, chunksize=CHUNK_ROWS, low_memory=False):
        chunks.append(chunk)
    return pd.concat(chunks, axis=0, ignore_index=True).to_numpy().astype(np.float32)


def npy(path):
    """The converted matrix, read whole."""
    return np.load(path, allow_pickle=False)


LOADERS = {"read_csv": read_csv, "chunked": chunked, "npy": npy}
CONVERTED = {"npy"}  # loaders that read the converted matrix; the others read the CSV
