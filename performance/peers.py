"""Other libraries that read NT3's file to one float32 matrix, beside this project's loaders."""

import time
import zlib

import numpy as np

from study.data import page_cache
from study.instruments.counters import read_peak_memory_mb


def polars(source):
    """Polars with a schema of Float32."""
    import polars

    columns = _columns(source)
    schema = {f"column_{index + 1}": polars.Float32 for index in range(columns)}
    return lambda: polars.read_csv(source, has_header=False, schema=schema).to_numpy()


def pyarrow(source):
    """Arrow's own CSV reader with a type per column."""
    from pyarrow import csv, float32

    names = [str(index) for index in range(_columns(source))]
    read = csv.ReadOptions(column_names=names)
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, float32()))

    def run():
        table = csv.read_csv(source, read_options=read, convert_options=convert)
        return np.stack([column.to_numpy() for column in table.columns], axis=1)

    return run


def pandas_pyarrow(source):
    """Pandas with ``engine="pyarrow"``."""
    import pandas

    return lambda: pandas.read_csv(source, header=None, engine="pyarrow").to_numpy(dtype=np.float32)


PEERS = {function.__name__: function for function in (polars, pyarrow, pandas_pyarrow)}


def measure(name, source):
    """Seconds, memory beyond the imports (MB) and a checksum; the file is in the page cache, imports are done."""
    page_cache.warm(source)
    read = PEERS[name](source)
    before, begun = read_peak_memory_mb(), time.perf_counter()
    matrix = np.ascontiguousarray(read())
    seconds = time.perf_counter() - begun
    return {"load_s": seconds, "memory_mb": read_peak_memory_mb() - before, "crc32": zlib.crc32(matrix)}


def _columns(source):
    with open(source, "rb") as handle:
        return handle.readline().count(b",") + 1
