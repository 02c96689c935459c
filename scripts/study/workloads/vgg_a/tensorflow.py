"""VGG-A in Keras."""

from typing import Any

from tf_keras import Sequential, layers

from study.workloads import vgg_a
from study.workloads.images.tensorflow import ImageBenchmark, convolution, hidden, output
from study.workloads.tensorflow import dropout


class Benchmark(vgg_a.Workload, ImageBenchmark):
    """VGG-A with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: blocks of convolutions of 3 x 3, dense layers of 4,096 units with dropout, softmax."""
        model = self.spec["model"]
        stack = [layers.Input(shape)]
        for block in vgg_a.BLOCKS:
            stack += [*(convolution(model, filters, 3) for filters in block), layers.MaxPooling2D(2)]
        stack.append(layers.Flatten())
        for _ in range(2):
            stack += [hidden(model, 4096), dropout(model["dropout"])]
        return Sequential([*stack, output(model)])
