"""NT3 in Keras: a 1D convolutional network."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import base, nt3
from study.workloads.tensorflow import dropout


class Benchmark(nt3.Workload, base.Benchmark):
    """NT3 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: convolutions with max pooling, then dense layers with dropout, then softmax."""
        model = self.spec["model"]
        stack = [layers.Input(shape)]
        for layer in model["convolutions"]:
            stack += [
                layers.Conv1D(
                    layer["filters"], layer["width"], strides=layer["stride"], activation=model["activation"]
                ),
                layers.MaxPooling1D(layer["pool"]),
            ]
        stack.append(layers.Flatten())
        for units in model["dense"]:
            stack += [layers.Dense(units, activation=model["activation"]), dropout(model["dropout"])]
        stack.append(layers.Dense(model["classes"], activation="softmax"))
        return Sequential(stack)
