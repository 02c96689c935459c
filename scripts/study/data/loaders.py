"""The loaders: methods that load a dataset's file into memory; all give bit-identical matrices."""

import importlib
import io
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.registry import Registry
from study.data import formats, wide
from study.data.formats import FORMATS
from study.data.tabular import Form

CHUNK_ROWS = 2_000_000  # ``csize`` in the paper's listing: rows, although its text says 16 MB
PAGE_BYTES = 4096
SMALLEST_BLOCK = 1_000_000  # bytes; the overhead of a smaller block exceeds its parsing time


@dataclass(frozen=True)
class Loader:
    """One method to load a file.

    Args:
        reads: its input: ``raw``, the dataset's text file; ``converted``, the converted matrix; ``scaled``, in training
            the scaled numbers, mapped; ``format``, the matrix stored in another format, for measurements only.
        load: from (path, `Form`, the values of each code column) to a matrix, or to a data frame of the file.
        modules: to import beforehand, since imports belong to start-up and not to loading.
    """

    reads: str
    load: Callable[[Path, Form, list], np.ndarray | pd.DataFrame]
    modules: tuple[str, ...] = ()

    @property
    def is_mapped(self) -> bool:
        """Whether it maps the file: pages are loaded when they are used."""
        return self.reads == "scaled"

    @property
    def can_train(self) -> bool:
        """Whether a run can use it."""
        return self.reads != "format"


LOADERS: Registry[Loader] = Registry("loader")


def _loader(name: str, reads: str, modules: tuple[str, ...] = ()) -> Callable:
    """Register the decorated function as a `Loader`."""

    def register(function: Callable) -> Callable:
        LOADERS.add(name, Loader(reads, function, modules))
        return function

    return register


@_loader("read_csv", reads="raw")
def read_csv(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """The benchmarks' original call (icpp2019, section 5, first listing)."""
    return pd.read_csv(path, **form.reading_options())


@_loader("chunked", reads="raw")
def chunked(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """The paper's improved call: chunks with ``low_memory=False`` (icpp2019, section 5, second listing)."""
    chunks = []
    for chunk in pd.read_csv(path, **form.reading_options(), chunksize=CHUNK_ROWS, low_memory=False):
        chunks.append(chunk)
    return pd.concat(chunks, axis=0, ignore_index=True)


@_loader("dask", reads="raw", modules=("dask.bytes",))
def dask(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """Dask: one block of lines per core, each parsed in a thread with ``low_memory=False``.

    The paper tried Dask's data frame (icpp2019, section 5), without saying how. Today its ``read_csv`` inspects each
    column of each block, which dominates the time for 60,000 columns; this loader reads the same blocks without that.
    By default pandas would parse a wide block a few rows at a time, with a step per column under Python's global lock,
    so that the threads would wait for each other.
    """
    import dask
    from dask.bytes import read_bytes

    with open(path, "rb") as handle:
        header = handle.readline() if form.header else b""
        handle.seek(0, os.SEEK_END)
        # Rounded down, as read_bytes makes size // blocksize blocks.
        blocksize = max(SMALLEST_BLOCK, handle.tell() // len(os.sched_getaffinity(0)))
    _, (blocks,) = read_bytes(str(path), delimiter=b"\n", blocksize=blocksize, sample=False)
    parse = dask.delayed(_parsed)
    frames = [parse(block, b"" if first == 0 else header, form) for first, block in enumerate(blocks)]
    return pd.concat(dask.compute(*frames, scheduler="threads"), axis=0, ignore_index=True)


def _parsed(block: bytes, header: bytes, form: Form) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(header + block), **form.reading_options(), low_memory=False)


@_loader("parallel", reads="raw", modules=("pyarrow.csv",))
def parallel(path: str | Path, form: Form, values: list) -> np.ndarray:
    """Our own loader: wide tables in blocks of lines on all cores, straight to float32; others as ``chunked``.

    Returns the matrix; see `study.data.wide`. values: for each code column its list of values.
    """
    names = wide.column_names(path, form)
    leading = wide.leading_columns(form, names)
    if leading is None:
        return form.matrix(chunked(path, form, values), values)
    table = wide.layout(Path(path), form, leading, len(names))
    codes = len(form.codes)
    matrix = np.empty((table.rows, codes + len(names) - leading), dtype=np.float32)
    try:
        texts = wide.fill(matrix[:, codes:], table, form)
    except wide.BlockError as error:
        raise StudyError(f"after row {error.first_row}: {error}") from None
    for index, (column, known) in enumerate(zip(wide.code_columns(form, names, texts), values, strict=True)):
        matrix[:, index] = form.positions(column, known)
    return matrix


@_loader("npy", reads="converted")
def npy(path: str | Path, form: Form, values: list) -> np.ndarray:
    """The converted matrix, read into memory."""
    return _converted(path)


@_loader("mapped", reads="scaled")
def mapped(path: str | Path, form: Form, values: list) -> np.ndarray:
    """A converted matrix, memory-mapped: see `map_matrix`."""
    return map_matrix(path)


def map_matrix(path: str | Path) -> np.ndarray:
    """The matrix in a ``.npy`` file, memory-mapped: all processes of a node share one copy, in the page cache.

    It is writable, because TensorFlow requires this of memory that it shares; changes stay private to the process.
    """
    return _converted(path, "c")


def touch(matrix: np.ndarray) -> float:
    """Read one value of each page of a mapped ``matrix``; before this, no data are loaded."""
    return float(matrix.ravel()[:: PAGE_BYTES // matrix.itemsize].sum())


def _converted(path: str | Path, mmap_mode: Literal["c"] | None = None) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False, mmap_mode=mmap_mode)
    except (ValueError, EOFError) as error:
        raise StudyError(
            f"{path}: is no whole converted matrix ({error}); delete it, and it is converted again"
        ) from None


for _name, _format in FORMATS.items():
    if _name not in LOADERS:
        LOADERS.add(_name, Loader("format", lambda path, *_, name=_name: formats.read(name, path), (_format.module,)))
TRAINING_LOADERS = tuple(name for name, loader in LOADERS.items() if loader.can_train)


def import_for(loader: str) -> None:
    """Import the modules of a loader; this belongs to start-up and not to loading."""
    for module in LOADERS[loader].modules:
        importlib.import_module(module)


def load(loader: str, path: str | Path, sidecar: str | Path, form: dict[str, Any]) -> np.ndarray:
    """Load one file into its matrix.

    Args:
        loader: a name in `LOADERS`.
        path: the matrix in the loader's format, else the file.
        sidecar: the sidecar of the converted file.
        form: the file's form, the dict in the benchmark's YAML.

    Returns:
        float32 of shape (rows, codes + numbers).

    Raises:
        StudyError: the result does not have the shape in the sidecar.
    """
    described = read_sidecar(sidecar)
    parsed, values = Form.of(form), [code["values"] for code in described["codes"]]
    try:
        found = LOADERS[loader].load(Path(path), parsed, values)
        matrix = parsed.matrix(found, values) if isinstance(found, pd.DataFrame) else found
    except StudyError as error:
        if LOADERS[loader].reads != "raw":
            raise
        raise StudyError(f"{path}: {error}; was it changed after its conversion?") from None
    if list(matrix.shape) != described["shape"] or matrix.dtype != np.float32:
        raise StudyError(
            f"{path}: {matrix.shape} {matrix.dtype} was loaded, {sidecar} says {described['shape']} float32"
        )
    return matrix


def check_columns(files: dict[str, dict[str, str]], forms: dict[str, Any]) -> None:
    """Raise `StudyError` if a benchmark's training and testing files have different columns.

    files: {file: its paths, with "path" and "sidecar"}. forms: the benchmark's ``files``.
    """
    splits = [file for file, form in forms.items() if form.get("split")]
    described = {file: read_sidecar(files[file]["sidecar"])["columns"] for file in splits}
    for first, file in itertools.pairwise(splits):
        if described[file] != described[first]:
            counts = " and ".join(str(described[name][0]) for name in (first, file))
            how = f"{counts} numeric columns" if described[file][0] != described[first][0] else "other names or order"
            raise StudyError(
                f"{files[first]['path']} and {files[file]['path']} do not have the same columns ({how}); "
                "a model trained on one cannot be tested on the other"
            )


def read_sidecar(path: str | Path) -> dict[str, Any]:
    """The content of a converted file's sidecar, as a dict."""
    return json.loads(Path(path).read_text(encoding="utf-8"))
