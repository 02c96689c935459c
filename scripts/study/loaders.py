"""The ways to get a dataset's file into memory; each gives a bit-identical matrix."""

import importlib
import json
from pathlib import Path

import numpy as np
import pandas as pd

from study.datasets.tabular import Form
from study.errors import StudyError

CHUNK_ROWS = 2_000_000  # ``csize`` in the paper's listing: rows, although its text speaks of 16 MB
DASK_SAMPLE_ROWS = 4  # what Dask looks at before it reads; more than its 256 kB where rows are wide


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
    """Dask's data frame, blocks of the file in threads (icpp2019, section 5).

    Types are given beforehand: Dask guesses them from the first rows and fails where a later block differs.
    """
    import dask.config
    import dask.dataframe

    with open(path, "rb") as handle:
        sample = sum(len(handle.readline()) for _ in range(DASK_SAMPLE_ROWS))
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dask.dataframe.read_csv(path, **form.reading_options(np.float64), sample=max(sample, 256_000))
        return frame.compute(scheduler="threads")


def import_for(loader):
    """Import what a loader needs, which is part of starting up and not of loading."""
    if loader == "dask":
        importlib.import_module("dask.dataframe")


CSV_LOADERS = {"read_csv": read_csv, "chunked": chunked, "dask": dask}
CONVERTED = {"npy"}  # loaders that read the converted matrix; the others read the file itself
LOADERS = (*CSV_LOADERS, *CONVERTED)


def load(loader, path, sidecar, form):
    """Load one file into its matrix.

    loader: a name in ``LOADERS``. path: the converted matrix for those in ``CONVERTED``, else the file. sidecar: the
    converted file's. form: the file's form, the dict in the benchmark's YAML. Returns float32 of shape (rows, codes +
    numbers). Raises `StudyError` where the result is not of the shape that the sidecar tells.
    """
    described = read_sidecar(sidecar)
    if loader in CONVERTED:
        matrix = np.load(path, allow_pickle=False)
    else:
        form = Form.of(form)
        frame = CSV_LOADERS[loader](path, form)
        try:
            matrix = form.matrix(frame, [code["values"] for code in described["codes"]])
        except StudyError as error:
            raise StudyError(f"{path}: {error}; was it changed after its conversion?") from None
    if list(matrix.shape) != described["shape"] or matrix.dtype != np.float32:
        raise StudyError(
            f"{path}: {matrix.shape} {matrix.dtype} was loaded, {sidecar} says {described['shape']} float32"
        )
    return matrix


def read_sidecar(path):
    """What a converted file's sidecar says, as a dict."""
    return json.loads(Path(path).read_text(encoding="utf-8"))
