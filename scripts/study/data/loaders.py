"""The loaders: methods that load a dataset's file into memory; all give bit-identical matrices."""

from __future__ import annotations

import dataclasses
import importlib
import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core import cores, validation
from study.core.errors import StudyError
from study.core.files import read_json
from study.core.lazy import pandas as pd
from study.core.registry import Registry
from study.data import matrix_file, text_file, text_table
from study.data.tabular import Form

CHUNK_ROWS = 2_000_000  # ``csize`` in the paper's listing: rows, although its text says 16 MB
PAGE_BYTES = 4096
LONG = ("codes", "definition", "fitted_on")  # keys of sidecars that may be long, and are in the run's definition
SMALLEST_BLOCK = 1_000_000  # bytes; the overhead of a smaller block exceeds its parsing time
# Above this width, Dask's own call takes minutes for a file of NT3's size: measured, see docs/loading.md.
MOST_COLUMNS_OF_DASK = 30_000
DASK_SAMPLE_BYTES = 256_000  # Dask's default: what it reads beforehand to know the columns


@dataclass(frozen=True)
class Loader:
    """One method to load a file.

    Args:
        reads: its input: ``raw``, the dataset's text file; ``converted``, the converted matrix; ``scaled``, in training
            the scaled numbers, mapped.
        load: from (path, `Form`, the values of each code column) to a matrix, or to a data frame of the file.
        modules: to import beforehand, since imports belong to start-up and not to loading.
        most_columns: files with more columns are refused; None if the width does not matter.
    """

    reads: str
    load: Callable[[Path, Form, list], np.ndarray | pd.DataFrame]
    modules: tuple[str, ...] = ()
    most_columns: int | None = None

    @property
    def is_mapped(self) -> bool:
        """True if it maps the file, so that pages are loaded when they are used."""
        return self.reads == "scaled"

    def explain_width(self, columns: int) -> str | None:
        """Why it refuses a file with this number of columns; None if it loads it."""
        if self.most_columns is None or columns <= self.most_columns:
            return None
        return f"has {columns:,} columns; above {self.most_columns:,} this loader takes minutes: use dask or chunked"


LOADERS: Registry[Loader] = Registry("loader")
PANDAS = ("pandas",)


def _loader(name: str, reads: str, modules: tuple[str, ...] = (), **more: Any) -> Callable:
    """Register the decorated function as a `Loader`. more: its other fields."""

    def register(function: Callable) -> Callable:
        LOADERS.add(name, Loader(reads, function, modules, **more))
        return function

    return register


@_loader("read_csv", reads="raw", modules=PANDAS)
def load_by_read_csv(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """Load a file by the benchmarks' original call (icpp2019, section 5, first listing)."""
    return pd.read_csv(path, **form.build_reading_options(), **_find_compression(path))


def _find_compression(path: str | Path) -> dict[str, str | None]:
    """The keyword of pandas for a file's compression, by its content instead of its name."""
    return {"compression": "gzip" if text_file.is_compressed(path) else None}


@_loader("chunked", reads="raw", modules=PANDAS)
def load_in_chunks(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """Load a file by the paper's improved call: chunks, ``low_memory=False`` (icpp2019, section 5, second listing)."""
    chunks = []
    options = {**form.build_reading_options(), **_find_compression(path), "chunksize": CHUNK_ROWS, "low_memory": False}
    for chunk in pd.read_csv(path, **options):
        chunks.append(chunk)
    return pd.concat(chunks, axis=0, ignore_index=True)


@_loader("dask", reads="raw", modules=(*PANDAS, "dask", "fsspec.utils"))
def load_by_dask(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """Load a file with Dask: one block of lines per core, parsed in threads with ``low_memory=False``.

    Dask's own call, `load_by_dask_dataframe`, inspects each column of each block, which dominates the time for 60,000
    columns; this loader reads blocks without that.
    By default pandas would parse a wide block a few rows at a time, with a step per column under Python's global lock,
    so that the threads would wait for each other. A compressed file is one block, as Dask cannot divide it.
    """
    import dask

    dask.config.refresh(paths=[], env={})  # without files of the home or of the site
    with text_file.open_text(path) as handle:
        header = handle.readline() if form.header else b""
    blocks = [dask.delayed(_read_block)(path, begin, size) for begin, size in _divide_into_spans(path)]
    parse = dask.delayed(_parse_block)
    frames = [parse(block, b"" if first == 0 else header, form) for first, block in enumerate(blocks)]
    return pd.concat(dask.compute(*frames, scheduler="threads"), axis=0, ignore_index=True)


def _divide_into_spans(path: str | Path) -> list[tuple[int, int | None]]:
    """(begin, size) of each of Dask's blocks of a file, bytes; (0, None) is the whole file."""
    size = Path(path).stat().st_size
    blocks = size // max(SMALLEST_BLOCK, size // cores.count_threads())
    if text_file.is_compressed(path) or blocks < 2:
        return [(0, None)]
    edges = [index * size // blocks for index in range(blocks + 1)]
    return [(begin, end - begin) for begin, end in itertools.pairwise(edges)]


def _read_block(path: str | Path, begin: int, size: int | None) -> bytes:
    """The lines of a file that begin in a block, read as by ``dask.bytes.read_bytes``, which expects a URL.

    Brackets, stars and colons in a path would have a meaning there.
    """
    from fsspec.utils import read_block

    with text_file.open_text(path) as handle:
        return handle.read() if size is None else read_block(handle, begin, size, b"\n")


@_loader("dask_dataframe", reads="raw", modules=(*PANDAS, "dask.dataframe"), most_columns=MOST_COLUMNS_OF_DASK)
def load_by_dask_dataframe(path: str | Path, form: Form, values: list) -> pd.DataFrame:
    """Load a file by Dask's own call, as the paper tried (icpp2019, section 5): ``dask.dataframe.read_csv``.

    The blocks are Dask's. The types of the columns are given, as Dask takes them from the first rows, and fails where a
    later block has others. So are the names, or Dask would take a first row of a block that is like the header for it.
    """
    import dask
    import dask.dataframe

    dask.config.refresh(paths=[], env={})  # without files of the home or of the site
    with text_file.open_text(path) as handle:
        first = handle.readline()
    options = {
        **form.build_reading_options(),
        "dtype": form.build_types(),
        "sample": max(DASK_SAMPLE_BYTES, len(first) + 1),
    }
    if form.header:
        options["names"] = text_table.split_names(first, form)
    if text_file.is_compressed(path):
        options["blocksize"] = None  # Dask cannot divide it
    with open(path, "rb") as opened, dask.config.set({"dataframe.convert-string": False}):
        name = f"/dev/fd/{opened.fileno()}"  # Dask takes a path for a URL: brackets, stars and colons have a meaning
        frame = dask.dataframe.read_csv(name, **options, **_find_compression(path))
        return frame.compute(scheduler="threads", num_workers=cores.count_threads())


def _parse_block(block: bytes, header: bytes, form: Form) -> pd.DataFrame | None:
    """The table of a block of lines; None if no line begins in it, which `pandas.concat` leaves out."""
    if not block:
        return None
    return pd.read_csv(io.BytesIO(header + block), **form.build_reading_options(), low_memory=False)


@_loader("parallel", reads="raw", modules=PANDAS)
def load_in_parallel(path: str | Path, form: Form, values: list) -> np.ndarray:
    """Load a file by our own reader: blocks of lines on all cores, straight to float32.

    Returns the matrix. values: for each code column its list of values.
    """
    table = text_table.find_columns(form, text_table.read_column_names(path, form))
    if table is None:
        return form.build_matrix(load_in_chunks(path, form, values), values)
    lines = text_table.find_layout(Path(path), form)
    matrix = np.empty((lines.rows, table.categories + table.numbers), dtype=np.float32)
    try:
        categories = text_table.fill_matrix(matrix[:, table.categories :], lines, form, table)
    except text_table.BlockError as error:
        raise StudyError(f"after row {error.first_row}: {error}") from None
    for index, (column, known_values) in enumerate(zip(categories, values, strict=True)):
        places = form.find_positions(column.series(form.codes[index], form.values[index]), known_values)
        column.write(matrix[:, index], places)
    return matrix


@_loader("npy", reads="converted")
def load_npy(path: str | Path, form: Form, values: list) -> np.ndarray:
    """The converted matrix, read into memory."""
    return matrix_file.read_matrix(path)


@_loader("mapped", reads="scaled")
def load_mapped(path: str | Path, form: Form, values: list) -> np.ndarray:
    """The converted matrix, memory-mapped by `map_matrix`."""
    return map_matrix(path)


def map_matrix(path: str | Path) -> np.ndarray:
    """The matrix in a ``.npy`` file, memory-mapped: all processes of a node share it in the page cache.

    It is writable, because TensorFlow requires this of memory that it shares; changes stay private to the process.
    """
    return matrix_file.read_matrix(path, "c")


def touch_pages(matrix: np.ndarray) -> float:
    """Load a mapped ``matrix`` by reading one value of each page; returns their sum."""
    return float(matrix.ravel()[:: PAGE_BYTES // matrix.itemsize].sum())


def import_modules(loader: str) -> None:
    """Import a loader's modules beforehand, as part of start-up and not of loading."""
    for module in LOADERS[loader].modules:
        importlib.import_module(module)


def load_matrix(loader: str, path: str | Path, sidecar: str | Path, form: dict[str, Any]) -> np.ndarray:
    """The matrix of one file of a dataset, loaded by a loader.

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
    parsed = dataclasses.replace(Form.from_spec(form), has_plain_numbers=described["has_plain_numbers"])
    values = [code["values"] for code in described["codes"]]
    is_raw = LOADERS[loader].reads == "raw"
    try:
        if is_raw:
            _check_size(Path(path), described["source"]["bytes"])
        _check_width(Path(path), parsed, LOADERS[loader])
        loaded = LOADERS[loader].load(Path(path), parsed, values)
        matrix = loaded if isinstance(loaded, np.ndarray) else parsed.build_matrix(loaded, values)
    except (StudyError, ValueError, LookupError) as error:  # the last two are what libraries raise for a wrong table
        if not is_raw:
            raise
        raise StudyError(f"{path}: {error}; was it changed after its conversion?") from None
    if list(matrix.shape) != described["shape"] or matrix.dtype != np.float32:
        raise StudyError(
            f"{path}: {matrix.shape} {matrix.dtype} was loaded, {sidecar} says {described['shape']} float32"
        )
    return matrix


def _check_size(path: Path, converted_bytes: int) -> None:
    """Raise `StudyError` if a raw file's size is not that of the converted one."""
    if path.is_file() and (size := path.stat().st_size) != converted_bytes:  # a pipe is no regular file, has no size
        raise StudyError(f"has {size} bytes, {converted_bytes} were converted")


def _check_width(path: Path, form: Form, loader: Loader) -> None:
    """Raise `StudyError` if a file is too wide for a loader; the plan mostly knows beforehand."""
    if loader.most_columns is not None:
        refused = loader.explain_width(len(text_table.read_column_names(path, form)))
        if refused:
            raise StudyError(refused)


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
    """The content of a converted file's sidecar; raises `StudyError` if it is not one."""
    return validation.load_valid_json(path, "sidecar")


def describe_source(sidecar: str | Path, scaled: str | Path | None = None) -> dict[str, Any]:
    """Shape and source state of a converted file, for a run's provenance.

    Args:
        sidecar: of the converted file.
        scaled: the sidecar of its scaled file, if there is one.

    Raises:
        StudyError: one of them cannot be read.
    """
    content = read_sidecar(sidecar) | (read_json(scaled) if scaled else {})
    return {key: value for key, value in content.items() if key not in LONG}
