"""The ways to get a dataset's file into memory; each gives a bit-identical matrix."""

import importlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from study.data import formats, wide
from study.data.formats import FORMATS
from study.data.tabular import Form
from study.core.errors import StudyError

CHUNK_ROWS = 2_000_000  # ``csize`` in the paper's listing: rows, although its text speaks of 16 MB
PAGE_BYTES = 4096
SMALLEST_BLOCK = 1_000_000  # bytes; smaller ones cost more to hand out than to parse


def read_csv(path, form):
    """The benchmarks' original call (icpp2019, section 5, first listing)."""
    return pd.read_csv(path, **form.reading_options())


def chunked(path, form):
    """The paper's improved call: chunks with ``low_memory=False`` (icpp2019, section 5, second listing)."""
    chunks = []
    for chunk in pd.read_csv(path, **form.reading_options(), chunksize=CHUNK_ROWS, low_memory=False):
        chunks.append(chunk)
    return pd.concat(chunks, axis=0, ignore_index=True)


def dask(path, form):
    """Dask: as many blocks of lines as there are cores, each parsed by the original call, in threads.

    The paper tried Dask's data frame (icpp2019, section 5). Its ``read_csv`` today looks at each column of each block
    one by one, which takes longer than all else where there are 60,000; the blocks are the same without it.
    """
    import dask
    from dask.bytes import read_bytes

    with open(path, "rb") as handle:
        header = handle.readline() if form.header else b""
        handle.seek(0, os.SEEK_END)
        blocksize = max(SMALLEST_BLOCK, -(-handle.tell() // len(os.sched_getaffinity(0))))
    _, (blocks,) = read_bytes(str(path), delimiter=b"\n", blocksize=blocksize, sample=False)
    parse = dask.delayed(_parsed)
    frames = [parse(block, b"" if first == 0 else header, form) for first, block in enumerate(blocks)]
    return pd.concat(dask.compute(*frames, scheduler="threads"), axis=0, ignore_index=True)


def _parsed(block, header, form):
    return pd.read_csv(io.BytesIO(header + block), **form.reading_options())


def parallel(path, form, values):
    """Ours: a wide table by blocks on all cores, straight to float32 (`study.data.wide`); others as ``chunked``.

    Returns the matrix. values: for each code column its list of values.
    """
    names = wide.column_names(path, form)
    leading = wide.leading_columns(form, names)
    if leading is None:
        return form.matrix(chunked(path, form), values)
    table = wide.layout(path, form, leading, len(names))
    codes = len(form.codes)
    matrix = np.empty((table.rows, codes + len(names) - leading), dtype=np.float32)
    try:
        texts = wide.fill(matrix[:, codes:], table, form)
    except wide.BlockError as error:
        raise StudyError(f"after row {error.first_row}: {error}") from None
    for index, (column, known) in enumerate(zip(wide.code_columns(form, names, texts), values, strict=True)):
        matrix[:, index] = form.positions(column, known)
    return matrix


def import_for(loader):
    """Import what a loader needs, which is part of starting up and not of loading."""
    for name in {"dask": ["dask.bytes"], "parallel": ["pyarrow.csv"]}.get(loader, []):
        importlib.import_module(name)
    if loader in FORMATS:
        formats.import_for(loader)


CSV_LOADERS = {"read_csv": read_csv, "chunked": chunked, "dask": dask}  # these give a frame
CONVERTED = ("npy", "mapped")  # loaders that read the converted matrix; the others read the file itself
LOADERS = (*CSV_LOADERS, "parallel", *CONVERTED)
MEASURED = (*LOADERS, *(name for name in FORMATS if name not in LOADERS))  # what loading measurements compare


def map_matrix(path):
    """The matrix in a ``.npy`` file, mapped: all processes of a node that do so share one copy, in the page cache.

    It can be written to, as TensorFlow wants it of memory that it shares; what is written stays with the process.
    """
    return _converted(path, "c")


def touch(matrix):
    """Read a value of each page of a mapped ``matrix``: until then nothing is loaded but its address."""
    return float(matrix.ravel()[:: PAGE_BYTES // matrix.itemsize].sum())


def _converted(path, mmap_mode=None):
    try:
        return np.load(path, allow_pickle=False, mmap_mode=mmap_mode)
    except (ValueError, EOFError) as error:
        raise StudyError(
            f"{path}: is no whole converted matrix ({error}); delete it, and it is converted again"
        ) from None


def load(loader, path, sidecar, form):
    """Load one file into its matrix.

    loader: a name in ``MEASURED``. path: the matrix in the loader's format, else the file. sidecar: the converted
    file's. form: the file's form, the dict in the benchmark's YAML. Returns float32 of shape (rows, codes +
    numbers). Raises `StudyError` where the result is not of the shape that the sidecar tells.
    """
    described = read_sidecar(sidecar)
    if loader == "mapped":
        matrix = map_matrix(path)
    elif loader == "npy":
        matrix = _converted(path)
    elif loader in FORMATS:
        matrix = formats.read(loader, path)
    else:
        form, values = Form.of(form), [code["values"] for code in described["codes"]]
        try:
            if loader == "parallel":
                matrix = parallel(path, form, values)
            else:
                matrix = form.matrix(CSV_LOADERS[loader](path, form), values)
        except StudyError as error:
            raise StudyError(f"{path}: {error}; was it changed after its conversion?") from None
    if list(matrix.shape) != described["shape"] or matrix.dtype != np.float32:
        raise StudyError(
            f"{path}: {matrix.shape} {matrix.dtype} was loaded, {sidecar} says {described['shape']} float32"
        )
    return matrix


def check_columns(files, forms):
    """Raise `StudyError` where the files that count as a benchmark's training and testing data have other columns.

    files: {file: its paths, with "path" and "sidecar"}. forms: the benchmark's ``files``.
    """
    splits = [file for file, form in forms.items() if form.get("split")]
    described = {file: read_sidecar(files[file]["sidecar"])["columns"] for file in splits}
    first = splits[0]
    for file in splits[1:]:
        if described[file] != described[first]:
            counts = " and ".join(str(described[name][0]) for name in (first, file))
            how = f"{counts} numeric columns" if described[file][0] != described[first][0] else "other names or order"
            raise StudyError(
                f"{files[first]['path']} and {files[file]['path']} do not have the same columns ({how}); "
                "a model trained on one cannot be tested on the other"
            )


def read_sidecar(path):
    """What a converted file's sidecar says, as a dict."""
    return json.loads(Path(path).read_text(encoding="utf-8"))
