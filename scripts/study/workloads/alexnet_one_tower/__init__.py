"""AlexNet with one tower (Krizhevsky, arXiv:1404.5997): five convolutions, three dense layers.

The papers han2019 and pittman2018 trained TF-Slim's variant, `study.workloads.alexnet`.
"""

from typing import Any, ClassVar

from study.workloads import base, images


class Workload(images.ImageWorkload):
    """AlexNet with one tower: 61,100,840 parameters at 224 x 224 x 3 and 1,000 classes."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """63 pixels: three poolings of width 3, stride 2 need (63 + 4 - 11) / 4 + 1 = 15 pixels after a convolution."""
        return 63
