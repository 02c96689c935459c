"""What the study asks of a benchmark."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


@dataclass
class Data:
    """Arrays ready for Keras: float32, samples first."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Benchmark(ABC):
    """One CANDLE benchmark; ``spec`` is its YAML, already checked against the schema."""

    def __init__(self, spec):
        self.spec = spec

    @property
    @abstractmethod
    def minimum_features(self):
        """The fewest features that the model's layers can take."""

    @abstractmethod
    def synthetic_blocks(self, shape, seed, split):
        """Yield the bytes of a synthetic CSV file of this benchmark, a block of rows at a time."""

    @abstractmethod
    def preprocess(self, train, test):
        """Turn the loaded matrices (rows, label + features), float32, into `Data`."""

    @abstractmethod
    def build_model(self, features):
        """The Keras model, not compiled. features: columns without the label."""
