"""LeNet-5 in Keras."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import lenet_classic
from study.workloads.images.tensorflow import ImageBenchmark, convolution, hidden, output


class Benchmark(lenet_classic.Workload, ImageBenchmark):
    """LeNet-5 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: convolutions of 6 and 16 filters, each with pooling; 120 and 84 units; softmax."""
        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                convolution(model, 6, 5, padding="valid"),
                layers.MaxPooling2D(2),
                convolution(model, 16, 5, padding="valid"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                hidden(model, 120),
                hidden(model, 84),
                output(model),
            ]
        )
