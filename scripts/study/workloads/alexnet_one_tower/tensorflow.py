"""AlexNet with one tower, in Keras."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import alexnet_one_tower
from study.workloads.images.tensorflow import ImageBenchmark, convolution, hidden, output
from study.workloads.tensorflow import dropout


class Benchmark(alexnet_one_tower.Workload, ImageBenchmark):
    """AlexNet with one tower, with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: five convolutions, two dense layers of 4,096 units with dropout, softmax."""
        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                layers.ZeroPadding2D(2),
                convolution(model, 64, 11, stride=4, padding="valid"),
                layers.MaxPooling2D(3, 2),
                convolution(model, 192, 5),
                layers.MaxPooling2D(3, 2),
                convolution(model, 384, 3),
                convolution(model, 256, 3),
                convolution(model, 256, 3),
                layers.MaxPooling2D(3, 2),
                layers.Flatten(),
                dropout(model["dropout"]),
                hidden(model, 4096),
                dropout(model["dropout"]),
                hidden(model, 4096),
                output(model),
            ]
        )
