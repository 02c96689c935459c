"""P1B1: an autoencoder that compresses expression profiles (icpp2019, 2.1.2)."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from study.data.feature_scaling import Scaler, fit_min_max
from study.workloads import base

EXPRESSED = 0.615  # share of genes that are not 0; makes the CSV 4.46 bytes a value, as the real files (771 MiB)
LATENT = 2  # as many hidden factors as the bottleneck has units
CANCER_TYPES = 20


class Workload(base.Workload):
    """P1B1's synthetic data and preprocessing."""

    model_schema = base.all_of(
        encoder=base.WIDTHS, bottleneck=base.COUNT, activation=base.TEXT, output_activation=base.TEXT
    )

    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """Yield CSV bytes: case, cancer type, then expression values in [0, 10) with three decimals.

        The expressed genes follow ``LATENT`` hidden factors of a sample, and a little noise.
        """
        features = self.count_columns(file, shape["features"]) - 2  # beside case and cancer type
        samples = shape[f"{file}_samples"]
        genes = np.random.default_rng([seed, 0])
        expressed = genes.random(features) < EXPRESSED
        loadings = genes.normal(0, 1.2, (LATENT, features)).astype(np.float32)
        rows = np.random.default_rng([seed, 1 if file == "train" else 2])
        factors = rows.normal(size=(samples, LATENT)).astype(np.float32)
        types = rows.integers(CANCER_TYPES, size=samples)

        def draw_values(block: NDArray[np.int64]) -> NDArray[np.float64]:
            expressions = 5 + factors[block] @ loadings
            expressions += rows.normal(0, 0.3, expressions.shape)
            return np.where(expressed, np.clip(expressions, 0.001, 9.999), 0)

        return base.matrix_blocks(*base.build_case_prefixes(file, types, features), draw_values, decimals=3, zero=b"0")

    scaled_files = ("train", "test")
    metric_names = ("correlation",)  # of input and output

    def scalers(self, tables: Mapping[str, base.Table]) -> dict[str, Scaler]:
        """Fit min-max scaling on train and test together."""
        return dict.fromkeys(self.scaled_files, fit_min_max(*(tables[file].numbers for file in self.scaled_files)))

    def arrange(self, tables: Mapping[str, base.Table], seed: int) -> base.Data:
        """Arrange the samples, whose output is their input; the last rows are for validation."""
        samples, test = (tables[file].samples() for file in ("train", "test"))
        first = len(samples) - self.validation_samples(len(samples))
        return base.Data(samples.rows(slice(first)), samples.rows(slice(first, None)), test, samples.shape[0])
