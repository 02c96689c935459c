"""LeNet in Keras, as TF-Slim has it."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import lenet
from study.workloads.images.tensorflow import ImageBenchmark, convolution, hidden, output
from study.workloads.tensorflow import dropout


class Benchmark(lenet.Workload, ImageBenchmark):
    """LeNet with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: convolutions of 32 and 64 filters, with max pooling; 1,024 units, dropout, softmax."""
        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                convolution(model, 32, 5),
                layers.MaxPooling2D(2),
                convolution(model, 64, 5),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                hidden(model, 1024),
                dropout(model["dropout"]),
                output(model),
            ]
        )
