"""ResNet-50 (He et al., arXiv:1512.03385) as TF-Slim has it, which han2019 trained.

Convolutions have no bias before batch normalisation. The stride of a stage is in the 3 x 3 convolution of its last
unit; in the paper of He et al. it is in the first convolution of the next stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from study.workloads import images

BATCH_NORM_EPSILON = 1e-5  # of TF-Slim


@dataclass(frozen=True)
class Unit:
    """A residual unit: convolutions of 1 x 1, 3 x 3 and 1 x 1, added to its input.

    inputs: channels. width: filters of the first two convolutions; the third has four times as many. stride: of the
    second convolution.
    """

    inputs: int
    width: int
    stride: int

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return 4 * self.width

    @property
    def has_new_width(self) -> bool:
        """True if a convolution changes the width of the input before it is added."""
        return self.inputs != self.outputs


class Workload(images.ImageWorkload):
    """ResNet-50: 25,610,152 parameters at 1,000 classes, of which 53,120 are moving statistics."""

    blocks: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)  # units of each stage

    @property
    def minimum_size(self) -> int:
        """32 pixels: the image is halved five times."""
        return 32

    @classmethod
    def list_units(cls) -> Iterator[Unit]:
        """The residual units in their order."""
        channels = 64
        for stage, number in enumerate(cls.blocks):
            width = 64 << stage
            for unit in range(number):
                is_strided = unit == number - 1 and stage < len(cls.blocks) - 1
                yield Unit(channels, width, 2 if is_strided else 1)
                channels = 4 * width
