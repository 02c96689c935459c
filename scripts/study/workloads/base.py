"""The interface of a workload and of its model in a framework, and code that most workloads share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from study.data.csv_writer import format_rows
from study.data.feature_scaling import Scaler
from study.data.samples import Arrays, Can, SampleSource

ROWS_PER_BLOCK = 16  # of a synthetic file, written at a time
Files = Mapping[str, Mapping[str, str]]  # {file: {"path", "sidecar"}}


@dataclass
class Table:
    """One loaded file. matrix: float32 (rows, codes + numbers); codes: for each column of categories its values.

    scaled: the scaled numeric columns, if they were scaled beforehand; the matrix then has only the columns of
    categories.
    """

    matrix: NDArray[np.float32]
    codes: list[Any]
    scaled: NDArray[np.float32] | None = None

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The numeric columns, a view."""
        return self.matrix[:, len(self.codes) :] if self.scaled is None else self.scaled

    def categories(self, index: int = 0) -> NDArray[Any]:
        """The values of a column of categories, an array with one element per row."""
        return np.asarray(self.codes[index])[self.matrix[:, index].astype(np.int64)]

    def samples(self, y: NDArray[np.float32] | None = None, has_channel: bool = False) -> Arrays:
        """One sample per row, with its scaled numbers as input.

        y: the outputs, float32 (rows, outputs); None if the input is also the output. has_channel: whether the shape of
        an input is (features, 1) instead of (features,).
        """
        x = self.numbers[..., None] if has_channel else self.numbers
        return Arrays(x, x if y is None else y)


@dataclass
class Data:
    """Samples for training, validation and test. features: elements of a sample, as the paper counts them.

    unmatched: {what: how many rows of the files matched nothing and were left out}.
    """

    train: SampleSource
    validation: SampleSource
    test: SampleSource
    features: int
    unmatched: dict[str, int] = field(default_factory=dict)


class Workload(ABC):
    """A benchmark's part that is independent of a framework: files, synthetic data, scalers, arrangement of samples.

    ``spec`` is the benchmark's YAML, already checked against the schema.
    """

    kind = "tables"  # of its samples: tables, which are loaded, or images, which are read while the model trains
    scaled_files: tuple[str, ...] = ()  # those whose numbers `scalers` scales
    model_schema: ClassVar[dict[str, Any]] = {"type": "object"}  # JSON Schema of ``model`` in the benchmark's YAML
    can = Can.RANDOM_ACCESS | Can.IN_MEMORY  # of the sample sources that `arrange` gives
    joins_tables = False  # whether it joins its files by names and reads ``unmatched_at_most`` of its YAML
    metric_names: tuple[str, ...] = ("accuracy",)  # besides the loss; accuracy: share of samples in the right class
    generator_version = 1  # raise it when the same seed gives other bytes: it is part of a synthetic dataset's id

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    @property
    def minimum_features(self) -> int:
        """The fewest features that the model's layers can take."""
        return 1

    def validation_samples(self, rows: int) -> int:
        """The number of validation samples, taken from ``rows`` training rows."""
        return int(rows * self.spec["validation_share"])

    def expected_shape(self, file: str, shape: Mapping[str, int]) -> tuple[int | None, int | None]:
        """(rows, columns) of one file of a dataset with ``shape`` (train_samples, test_samples, features).

        None for a number that is known only from the file.
        """
        return shape[f"{self.spec['files'][file]['split']}_samples"], self.count_columns(file, shape["features"])

    def count_columns(self, file: str, features: int) -> int:
        """Number of columns of a file of ``features``: columns of categories and those that are dropped come on top."""
        form = self.spec["files"][file]
        return features + len(form.get("codes", [])) + len(form.get("drop", []))

    @abstractmethod
    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """Yield the bytes of one synthetic file of this benchmark, a block of rows at a time.

        file: a key of ``files``. shape: train_samples, test_samples, features; a table has `count_columns`. Synthetic
        data have a signal that the model can learn; all files of a seed share it.
        """

    def scalers(self, tables: Mapping[str, Table]) -> dict[str, Scaler]:
        """For each of ``scaled_files`` its `feature_scaling.Scaler`, fitted on ``tables``, {file: `Table`}."""
        return {}

    def open(self, files: Files, loader: str, threads: int, loaded: Collection[str] | None = None) -> dict[str, Any]:
        """The samples of each file, of a workload whose ``kind`` is images; see `study.workloads.images`."""
        raise TypeError(f"{type(self).__module__} loads tables")

    @abstractmethod
    def arrange(self, tables: Mapping[str, Table], seed: int) -> Data:
        """Turn the scaled files, {file: `Table`}, into `Data`, without changing them. seed: for shuffling.

        Take the files by name: they come in the order of their names, not in that of the YAML.
        """

    def preprocess(self, tables: Mapping[str, Table], seed: int) -> Data:
        """Turn the loaded files, {file: `Table`}, into `Data`; changes the matrices. seed: for shuffling."""
        for file, scaler in self.scalers(tables).items():
            scaler.apply(tables[file].numbers)
        return self.arrange(tables, seed)

    def samples(self, tables: Mapping[str, Table], seed: int) -> Data:
        """Turn the loaded files into `Data`; `preprocess` them first, unless they were scaled beforehand."""
        was_scaled = all(tables[file].scaled is not None for file in self.scaled_files) and bool(self.scaled_files)
        return self.arrange(tables, seed) if was_scaled else self.preprocess(tables, seed)


class Benchmark(Workload):
    """A workload with its model in one framework: a run trains it."""

    framework: ClassVar[str] = "tensorflow"  # of a model that is a single module

    @abstractmethod
    def build_model(self, shape: tuple[int, ...]) -> Any:
        """The framework's model; in Keras not compiled. shape: of one sample's input, from the sample source."""

    def metrics(self) -> list[Any]:
        """The framework's metrics besides the loss: those of `metric_names`. Keras knows ``accuracy`` by its name."""
        return list(self.metric_names)


FLAT = 1e-12  # squared deviations below this share of the squares are the rounding of sums of equal values
COUNT = {"type": "integer", "minimum": 1}
WIDTHS = {"type": "array", "minItems": 1, "items": COUNT}
SHARE = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
TEXT = {"type": "string", "minLength": 1}


def all_of(**properties: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of an object that has exactly these properties."""
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def matrix_blocks(
    header: bytes,
    prefixes: Sequence[bytes],
    values: Callable[[NDArray[np.int64]], NDArray[Any]],
    decimals: int,
    zero: bytes,
    separator: bytes = b",",
) -> Iterator[bytes]:
    """Yield the bytes of a numeric file: a header line, then blocks of rows.

    header: bytes, may be empty. prefixes: list of bytes, one per row. values: a function from the positions of a
    block's rows (an array) to floats of shape (rows, features). For the rest see `study.data.csv_writer.format_rows`.
    """
    if header:
        yield header
    for first in range(0, len(prefixes), ROWS_PER_BLOCK):
        block = np.arange(first, min(first + ROWS_PER_BLOCK, len(prefixes)))
        yield format_rows([prefixes[row] for row in block], values(block), decimals, zero, separator)


def build_case_prefixes(file: str, types: NDArray[np.int64], features: int) -> tuple[bytes, list[bytes]]:
    """(header, prefix of each row) for `matrix_blocks`, of CANDLE's files with case and cancer type before genes."""
    header = "case_id,cancer_type," + ",".join(f"g{gene}" for gene in range(features)) + "\n"
    return header.encode(), [b"%s-%05d,%d" % (file.encode(), row, kind) for row, kind in enumerate(types)]


def one_hot(classes: NDArray[np.int64], number: int) -> NDArray[np.float32]:
    """One-hot rows, float32 (samples, number), of integer ``classes`` below ``number``."""
    return np.eye(number, dtype=np.float32)[classes]
