"""LeNet as TF-Slim has it: two convolutions of 5 x 5 with padding, two dense layers (han2019, Table I and Table III).

Its 4,290,984 parameters at 28 x 28 x 3 and 1,000 classes fit the paper's Table III; the "60K" of its Table I are those
of the classic network, `study.workloads.lenet_classic`.
"""

from typing import Any, ClassVar

from study.workloads import base, images


class Workload(images.ImageWorkload):
    """LeNet in TF-Slim's shape."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)

    @property
    def minimum_size(self) -> int:
        """4 pixels: two poolings halve the image."""
        return 4
