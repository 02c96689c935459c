"""P1B2 in Keras: a multilayer perceptron."""

from typing import Any

from tf_keras import Sequential, layers, regularizers

from study.workloads import base, p1b2


class Benchmark(p1b2.Workload, base.Benchmark):
    """P1B2 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: dense layers with L2 regularisation of kernels and activities."""
        model = self.spec["model"]

        def make_dense(units: int, activation: str) -> Any:
            l2 = regularizers.l2(model["l2"])
            return layers.Dense(units, activation=activation, kernel_regularizer=l2, activity_regularizer=l2)

        return Sequential(
            [
                layers.Input(shape),
                *(make_dense(units, model["activation"]) for units in model["dense"]),
                layers.Dense(model["classes"], activation=model["output_activation"]),
            ]
        )
