"""Other libraries that read NT3's file to one float32 matrix, beside this project's loaders."""

import time
import zlib

import numpy as np

from study.data import page_cache
from study.instruments.counters import read_peak_memory_mb


def prepare_polars(source):
    """Prepare Polars with a schema of Float32; returns a function that reads ``source``."""
    import polars

    columns = _count_columns(source)
    schema = {f"column_{index + 1}": polars.Float32 for index in range(columns)}
    return lambda: polars.read_csv(source, has_header=False, schema=schema).to_numpy()


def prepare_pyarrow(source):
    """Prepare Arrow's own CSV reader with a type per column; returns a function that reads ``source``."""
    from pyarrow import csv, float32

    names = [str(index) for index in range(_count_columns(source))]
    read = csv.ReadOptions(column_names=names)
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, float32()))

    def run():
        table = csv.read_csv(source, read_options=read, convert_options=convert)
        return np.stack([column.to_numpy() for column in table.columns], axis=1)

    return run


def prepare_pandas_pyarrow(source):
    """Prepare Pandas with ``engine="pyarrow"``; returns a function that reads ``source``."""
    import pandas

    return lambda: pandas.read_csv(source, header=None, engine="pyarrow").to_numpy(dtype=np.float32)


PEERS = {"polars": prepare_polars, "pyarrow": prepare_pyarrow, "pandas_pyarrow": prepare_pandas_pyarrow}


def measure_peer(name, source):
    """Measure seconds, memory beyond the imports (MB) and a checksum, with warm page cache and imports done."""
    page_cache.warm_file(source)
    read = PEERS[name](source)
    before, begun = read_peak_memory_mb(), time.perf_counter()
    matrix = np.ascontiguousarray(read())
    seconds = time.perf_counter() - begun
    return {"load_s": seconds, "memory_mb": read_peak_memory_mb() - before, "crc32": zlib.crc32(matrix)}


def _count_columns(source):
    """Count the columns of a CSV file by its first line."""
    with open(source, "rb") as handle:
        return handle.readline().count(b",") + 1
