"""AlexNet as TF-Slim has it (``alexnet_v2``), which han2019 and pittman2018 trained.

The one-tower network of `study.workloads.alexnet_one_tower` has other filters, pads the image, and has 22 % more
parameters.
"""

from typing import Any, ClassVar

from study.workloads import base, images


class Workload(images.ImageWorkload):
    """AlexNet in TF-Slim's shape: 50,303,912 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """67 pixels: three poolings of width 3, stride 2 need (67 - 11) / 4 + 1 = 15 pixels after a convolution."""
        return 67
