"""AlexNet with one tower (Krizhevsky, arXiv:1404.5997): five convolutions, three dense layers.

The papers han2019 and pittman2018 trained TF-Slim's variant, `study.models.alexnet`.
"""

from typing import Any, ClassVar

from study.data.randomness import dropout
from study.models import base, images


class Benchmark(images.ImageBenchmark):
    """AlexNet with one tower: 61,100,840 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """Three poolings of width 3 and stride 2 need 15 pixels after the first convolution: (63 + 4 - 11) / 4 + 1."""
        return 63

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Convolutions of 64, 192, 384, 256 and 256 filters, dense layers of 4,096 units with dropout, softmax."""
        from tf_keras import Sequential, layers

        model = self.spec["model"]
        return Sequential(
            [
                layers.Input(shape),
                layers.ZeroPadding2D(2),
                images.convolution(model, 64, 11, stride=4, padding="valid"),
                layers.MaxPooling2D(3, 2),
                images.convolution(model, 192, 5),
                layers.MaxPooling2D(3, 2),
                images.convolution(model, 384, 3),
                images.convolution(model, 256, 3),
                images.convolution(model, 256, 3),
                layers.MaxPooling2D(3, 2),
                layers.Flatten(),
                dropout(model["dropout"]),
                images.hidden(model, 4096),
                dropout(model["dropout"]),
                images.hidden(model, 4096),
                images.output(model),
            ]
        )
