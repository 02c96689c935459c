"""NT3: a 1D convolutional network that classifies normal and tumour tissue (icpp2019, 2.1.1)."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from study.data.feature_scaling import Scaler, fit_max_abs
from study.data.key_matching import check_classes
from study.workloads import base

CO_EXPRESSED = 20  # neighbouring genes that move together
CONTRAST = 7.0  # difference of the classes' means; learnt in about 8 epochs at the laptop study's size
NOISE = 0.5
ZERO_SHARE = 0.03  # genes not expressed
STRETCH = 1.33  # of all values: two digits before the point in so many that a value has 9.2 bytes, as in the real file


class Workload(base.Workload):
    """NT3's synthetic data and preprocessing."""

    generator_version = 2

    model_schema = base.all_of(
        classes=base.COUNT,
        convolutions={
            "type": "array",
            "minItems": 1,
            "items": base.all_of(filters=base.COUNT, width=base.COUNT, stride=base.COUNT, pool=base.COUNT),
        },
        dense=base.WIDTHS,
        activation=base.TEXT,
        dropout=base.SHARE,
    )

    @property
    def minimum_features(self) -> int:
        """The fewest features that leave one value after the convolutions and pooling layers."""
        length = 1
        for layer in reversed(self.spec["model"]["convolutions"]):
            length = (length * layer["pool"] - 1) * layer["stride"] + layer["width"]
        return length

    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """Yield CSV bytes: label (0 or 1, balanced), then expression values in [0, 10 x `STRETCH`) with six decimals.

        The classes differ by ``CONTRAST`` in blocks of neighbouring genes; both splits share the genes.
        """
        features = self.count_columns(file, shape["features"]) - 1  # beside the label
        samples = shape[f"{file}_samples"]
        genes = np.random.default_rng([seed, 0])
        mean = genes.uniform(4, 6, features).astype(np.float32)
        blocks = -(-features // CO_EXPRESSED)
        direction = np.repeat(genes.choice([-0.5, 0.5], blocks), CO_EXPRESSED)[:features].astype(np.float32)
        rows = np.random.default_rng([seed, 1 if file == "train" else 2])
        labels = rows.permutation(np.arange(samples) % self.spec["model"]["classes"])

        def draw_values(block: NDArray[np.int64]) -> NDArray[np.float32]:
            expressions = NOISE * rows.standard_normal((len(block), features), dtype=np.float32)
            expressions += (
                mean + np.where(labels[block] == 1, CONTRAST, -CONTRAST)[:, None].astype(np.float32) * direction
            )
            expressions[rows.random(expressions.shape, dtype=np.float32) < ZERO_SHARE] = 0
            return np.clip(expressions, 0, 9.999999) * np.float32(STRETCH)

        return base.matrix_blocks(b"", [b"%d" % label for label in labels], draw_values, decimals=6, zero=b"0.0")

    scaled_files = ("train", "test")

    def scalers(self, tables: Mapping[str, base.Table]) -> dict[str, Scaler]:
        """Fit MaxAbs scaling on train and test together.

        Scaling with the test set is CANDLE's method; it leaks test data and is kept for comparability.
        """
        return dict.fromkeys(self.scaled_files, fit_max_abs(*(tables[file].numbers for file in self.scaled_files)))

    def arrange(self, tables: Mapping[str, base.Table], seed: int) -> base.Data:
        """Arrange the samples with one-hot labels; the test set is also the validation set."""
        classes = {file: [f"{label:g}" for label in np.unique(tables[file].categories())] for file in ("train", "test")}
        check_classes({"train": classes["train"]}, {"test": classes["test"]})
        train, test = (
            tables[file].samples(
                base.one_hot(tables[file].categories(), self.spec["model"]["classes"]), has_channel=True
            )
            for file in ("train", "test")
        )
        return base.Data(train, test, test, features=train.shape[0])
