"""LeNet-5 as of 1998 (LeCun et al., Proc. IEEE 86, 2278), with max pooling, ReLU and softmax.

Its second convolution sees all six maps of the first, and its pooling has no weights: 61,706 parameters at 32 x 32 x 1
and 10 classes, where the original has 60,000.
"""

from study.workloads import images


class Workload(images.ImageWorkload):
    """LeNet-5."""

    @property
    def minimum_size(self) -> int:
        """16 pixels: two convolutions of 5 x 5 without padding, each with pooling, leave 1: ((16 - 4) / 2 - 4) / 2."""
        return 16
