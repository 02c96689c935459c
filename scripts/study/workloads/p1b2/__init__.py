"""P1B2: a multilayer perceptron that classifies ten cancer types by somatic SNPs (icpp2019, 2.1.3)."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.data.feature_scaling import Scaler, fit_min_max
from study.data.key_matching import check_classes
from study.workloads import base

MUTATED, MUTATED_IN_TYPE = 0.01, 0.5  # how often a gene has SNPs, and how often one that marks the sample's type has


class Workload(base.Workload):
    """P1B2's synthetic data and preprocessing."""

    model_schema = base.all_of(
        classes=base.COUNT,
        dense=base.WIDTHS,
        activation=base.TEXT,
        output_activation=base.TEXT,
        l2={"type": "number", "minimum": 0},
    )

    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """Yield CSV bytes: case, cancer type, then counts 0 to 9, mostly 0: 2.0 bytes a value, as the real files.

        Each gene marks one cancer type, in whose samples it is mutated more often.
        """
        features = self.count_columns(file, shape["features"]) - 2  # beside case and cancer type
        samples = shape[f"{file}_samples"]
        classes = self.spec["model"]["classes"]
        marks = np.random.default_rng([seed, 0]).integers(classes, size=features)
        rows = np.random.default_rng([seed, 1 if file == "train" else 2])
        types = rows.permutation(np.arange(samples) % classes)

        def draw_values(block: NDArray[np.int64]) -> NDArray[np.int64]:
            rate = np.where(marks == types[block][:, None], MUTATED_IN_TYPE, MUTATED)
            mutated = rows.random((len(block), features)) < rate
            return np.where(mutated, rows.integers(1, 10, mutated.shape), 0)

        return base.matrix_blocks(*base.build_case_prefixes(file, types, features), draw_values, decimals=0, zero=b"0")

    scaled_files = ("train", "test")

    def scalers(self, tables: Mapping[str, base.Table]) -> dict[str, Scaler]:
        """Fit min-max scaling on train and test together."""
        return dict.fromkeys(self.scaled_files, fit_min_max(*(tables[file].numbers for file in self.scaled_files)))

    def arrange(self, tables: Mapping[str, base.Table], seed: int) -> base.Data:
        """Arrange the samples with one-hot types; after a shuffle, the first rows are for validation."""
        y_train, y_test = self._encode_types(tables)
        shuffled = np.random.default_rng(seed).permutation(len(y_train))
        samples = tables["train"].samples(y_train).rows(shuffled)
        first = self.validation_samples(len(samples))
        return base.Data(
            samples.rows(slice(first, None)),
            samples.rows(slice(first)),
            tables["test"].samples(y_test),
            samples.shape[0],
        )

    def _encode_types(self, tables: Mapping[str, base.Table]) -> list[NDArray[np.float32]]:
        """The one-hot cancer types of the samples of train and test."""
        types = [tables[split].categories() for split in ("train", "test")]
        check_classes({"train": types[0].tolist()}, {"test": types[1].tolist()})
        type_names, classes = np.unique(np.concatenate(types)), self.spec["model"]["classes"]
        if len(type_names) > classes:
            raise StudyError(
                f"the files have {len(type_names)} cancer types, {classes} were expected: {', '.join(type_names)}"
            )
        return [base.one_hot(np.searchsorted(type_names, column), classes) for column in types]
