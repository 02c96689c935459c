"""AlexNet in Keras, as TF-Slim has it."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import alexnet
from study.workloads.images.tensorflow import ImageBenchmark, convolution, hidden, output
from study.workloads.tensorflow import dropout


class Benchmark(alexnet.Workload, ImageBenchmark):
    """AlexNet with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: five convolutions, two dense layers of 4,096 units with dropout, softmax.

        TF-Slim writes the dense layers as convolutions. The first covers the whole map, 5 x 5 at 224 pixels, so its
        weights and results are those of a dense layer.
        """
        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                convolution(model, 64, 11, stride=4, padding="valid"),
                layers.MaxPooling2D(3, 2),
                convolution(model, 192, 5),
                layers.MaxPooling2D(3, 2),
                convolution(model, 384, 3),
                convolution(model, 384, 3),
                convolution(model, 256, 3),
                layers.MaxPooling2D(3, 2),
                layers.Flatten(),
                hidden(model, 4096),
                dropout(model["dropout"]),
                hidden(model, 4096),
                dropout(model["dropout"]),
                output(model),
            ]
        )
