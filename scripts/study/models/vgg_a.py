"""VGG-A (Simonyan and Zisserman, arXiv:1409.1556, Table 1): eight convolutions, three dense layers."""

from typing import Any, ClassVar

from study.data.randomness import dropout
from study.models import base, images

BLOCKS = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # filters; each block ends with max pooling


class Benchmark(images.ImageBenchmark):
    """VGG-A: 132,863,336 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """Each block halves the image."""
        return 2 ** len(BLOCKS)

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Blocks of convolutions of 3 x 3, dense layers of 4,096 units with dropout, softmax."""
        from tf_keras import Sequential, layers

        model = self.spec["model"]
        stack = [layers.Input(shape)]
        for block in BLOCKS:
            stack += [*(images.convolution(model, filters, 3) for filters in block), layers.MaxPooling2D(2)]
        stack.append(layers.Flatten())
        for _ in range(2):
            stack += [images.hidden(model, 4096), dropout(model["dropout"])]
        return Sequential([*stack, images.output(model)])
