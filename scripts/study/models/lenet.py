"""LeNet as TF-Slim has it: two convolutions of 5 x 5 with padding, two dense layers (han2019, Table I and Table III).

Its 4,290,984 parameters at 28 x 28 x 3 and 1,000 classes fit the paper's Table III; the "60K" of its Table I are those
of the classic network, `study.models.lenet_classic`.
"""

from typing import Any, ClassVar

from study.data.randomness import dropout
from study.models import base, images


class Benchmark(images.ImageBenchmark):
    """LeNet in TF-Slim's shape."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """Two poolings halve the image."""
        return 4

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Convolutions of 32 and 64 filters, each with max pooling; 1,024 units, dropout, softmax."""
        from tf_keras import Sequential, layers

        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                images.convolution(model, 32, 5),
                layers.MaxPooling2D(2),
                images.convolution(model, 64, 5),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                images.hidden(model, 1024),
                dropout(model["dropout"]),
                images.output(model),
            ]
        )
