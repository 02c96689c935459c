"""Inception V1 as TF-Slim has it, which pittman2018 trained: GoogLeNet with 3 x 3 filters in place of 5 x 5.

Each convolution is followed by batch normalisation without a scale, in place of a bias and of local response
normalisation. The two auxiliary classifiers are left out. `study.workloads.googlenet` has the original filters.
"""

from typing import Any, ClassVar

from study.workloads import base, images

# Filters of a module: 1 x 1; 1 x 1 before 3 x 3, 3 x 3; 1 x 1 before the third branch's, these; 1 x 1 after pooling.
# Source: Szegedy et al., arXiv:1409.4842, Table 1.
MODULES = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,  # max pooling
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class Workload(images.ImageWorkload):
    """Inception V1 in TF-Slim's shape: 6,632,184 parameters at 1,000 classes, of which 14,560 are moving statistics."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)
    third_branch = 3  # width of its filters
    last_pooling = 2

    @property
    def minimum_size(self) -> int:
        """32 pixels: the image is halved five times, and below this the modules see a single pixel."""
        return 32
