"""VGG-A (Simonyan and Zisserman, arXiv:1409.1556, Table 1): eight convolutions, three dense layers."""

from typing import Any, ClassVar

from study.workloads import base, images

BLOCKS = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # filters; each block ends with max pooling


class Workload(images.ImageWorkload):
    """VGG-A: 132,863,336 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """32 pixels: each of five blocks halves the image."""
        return 2 ** len(BLOCKS)
