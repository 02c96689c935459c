"""ResNet-101 (He et al., arXiv:1512.03385) as TF-Slim has it, which han2019 trained."""

from typing import ClassVar

from study.workloads import resnet50


class Workload(resnet50.Workload):
    """ResNet-101: 44,654,504 parameters at 1,000 classes."""

    blocks: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)
