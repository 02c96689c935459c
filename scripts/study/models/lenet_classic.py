"""LeNet-5 as of 1998 (LeCun et al., Proc. IEEE 86, 2278), with max pooling, ReLU and softmax.

Its second convolution sees all six maps of the first, and its pooling has no weights: 61,706 parameters at 32 x 32 x 1
and 10 classes, where the original has 60,000.
"""

from typing import Any

from study.models import images


class Benchmark(images.ImageBenchmark):
    """LeNet-5."""

    @property
    def minimum_size(self) -> int:
        """Two convolutions of 5 x 5 without padding, each followed by pooling: (16 - 4) / 2 = 6, (6 - 4) / 2 = 1."""
        return 16

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Convolutions of 6 and 16 filters, each with pooling; 120 and 84 units; softmax."""
        from tf_keras import Sequential, layers

        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                images.convolution(model, 6, 5, padding="valid"),
                layers.MaxPooling2D(2),
                images.convolution(model, 16, 5, padding="valid"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                images.hidden(model, 120),
                images.hidden(model, 84),
                images.output(model),
            ]
        )
