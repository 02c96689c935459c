"""What the study asks of a benchmark, and what most have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from study.data.csv_writer import format_rows

ROWS_PER_BLOCK = 16  # of a synthetic file, written at a time


@dataclass
class Table:
    """One loaded file. matrix: float32 (rows, codes + numbers); codes: for each column of categories its values.

    scaled: the numeric columns as the benchmark's scaler leaves them, where that was done beforehand; the matrix has
    the columns of categories alone then.
    """

    matrix: np.ndarray
    codes: list
    scaled: np.ndarray | None = None

    @property
    def numbers(self):
        """The numeric columns, a view."""
        return self.matrix[:, len(self.codes) :] if self.scaled is None else self.scaled

    def categories(self, index=0):
        """The values of a column of categories, an array with an element a row."""
        return np.asarray(self.codes[index])[self.matrix[:, index].astype(np.int64)]


@dataclass
class Data:
    """Samples ready to train on, validate and test with. features: elements of a sample, as the paper counts them."""

    train: object  # study.data.samples.Arrays or Joined, as the other two
    validation: object
    test: object
    features: int


class Benchmark(ABC):
    """One CANDLE benchmark; ``spec`` is its YAML, already checked against the schema."""

    minimum_features = 1  # the fewest features that the model's layers can take
    scaled_files = ()  # those whose numbers `scalers` scales
    samples_are_joined = False  # whether they are `study.data.samples.Joined`, so that there is no array of them

    def __init__(self, spec):
        self.spec = spec

    def validation_samples(self, rows):
        """The number of validation samples, taken from ``rows`` training rows."""
        return int(rows * self.spec["validation_share"])

    def expected_shape(self, file, shape):
        """(rows, columns) of one file of a dataset with ``shape`` (train_samples, test_samples, features).

        None for what only the file tells.
        """
        form = self.spec["files"][file]
        columns = shape["features"] + len(form.get("codes", [])) + len(form.get("drop", []))
        return shape[f"{form['split']}_samples"], columns

    @abstractmethod
    def synthetic_blocks(self, file, shape, seed):
        """Yield the bytes of one synthetic file of this benchmark, a block of rows at a time.

        file: a key of ``files``. shape: train_samples, test_samples, features. Made-up data have a signal that the
        model can learn; all files of a seed share it.
        """

    def scalers(self, tables):
        """For each of ``scaled_files`` its `feature_scaling.Scaler`, fitted on ``tables``, {file: `Table`}."""
        return {}

    @abstractmethod
    def arrange(self, tables, seed):
        """Turn the scaled files, {file: `Table`}, into `Data`, without changing them. seed: for shuffles."""

    def preprocess(self, tables, seed):
        """Turn the loaded files, {file: `Table`}, into `Data`; the matrices are changed. seed: for shuffles."""
        for file, scaler in self.scalers(tables).items():
            scaler.apply(tables[file].numbers)
        return self.arrange(tables, seed)

    @abstractmethod
    def build_model(self, features):
        """The Keras model, not compiled. features: of `Data`."""

    def metrics(self):
        """The Keras metrics beside the loss. One named ``accuracy`` is what the paper's tables call accuracy."""
        return ["accuracy"]


def matrix_blocks(header, prefixes, values, decimals, zero, separator=b","):
    """Yield the bytes of a numeric file: a header line, then blocks of rows.

    header: bytes or nothing. prefixes: a list of bytes, one a row. values: a function from the positions of a block's
    rows (an array) to floats of shape (rows, features); see `study.data.csv_writer.format_rows` for the rest.
    """
    if header:
        yield header
    for first in range(0, len(prefixes), ROWS_PER_BLOCK):
        block = np.arange(first, min(first + ROWS_PER_BLOCK, len(prefixes)))
        yield format_rows([prefixes[row] for row in block], values(block), decimals, zero, separator)


def typed_cases(file, types, features):
    """Header and prefixes, for `matrix_blocks`, of CANDLE's files with a case and a cancer type before the genes."""
    header = "case_id,cancer_type," + ",".join(f"g{gene}" for gene in range(features)) + "\n"
    return header.encode(), [b"%s-%05d,%d" % (file.encode(), row, kind) for row, kind in enumerate(types)]


def one_hot(classes, number):
    """One-hot rows, float32 (samples, number), of integer ``classes`` below ``number``."""
    return np.eye(number, dtype=np.float32)[classes]
