"""AlexNet as TF-Slim has it (``alexnet_v2``), which han2019 and pittman2018 trained.

The one-tower network of `study.models.alexnet_one_tower` has other filters, pads the image, and has 22 % more
parameters.
"""

from typing import Any, ClassVar

from study.data.randomness import dropout
from study.models import base, images


class Benchmark(images.ImageBenchmark):
    """AlexNet in TF-Slim's shape: 50,303,912 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """Three poolings of width 3 and stride 2 need 15 pixels after the first convolution: (67 - 11) / 4 + 1."""
        return 67

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Convolutions of 64, 192, 384, 384 and 256 filters, dense layers of 4,096 units with dropout, softmax.

        TF-Slim writes the dense layers as convolutions. The first covers the whole map, 5 x 5 at 224 pixels, so its
        weights and results are those of a dense layer.
        """
        from tf_keras import Sequential, layers

        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                images.convolution(model, 64, 11, stride=4, padding="valid"),
                layers.MaxPooling2D(3, 2),
                images.convolution(model, 192, 5),
                layers.MaxPooling2D(3, 2),
                images.convolution(model, 384, 3),
                images.convolution(model, 384, 3),
                images.convolution(model, 256, 3),
                layers.MaxPooling2D(3, 2),
                layers.Flatten(),
                images.hidden(model, 4096),
                dropout(model["dropout"]),
                images.hidden(model, 4096),
                dropout(model["dropout"]),
                images.output(model),
            ]
        )
