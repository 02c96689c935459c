"""ResNet-50 (He et al., arXiv:1512.03385), as ``tf_keras.applications`` has it (han2019, Table I)."""

from study.workloads import images


class Workload(images.ImageWorkload):
    """ResNet-50: 25,636,712 parameters at 1,000 classes, of which 53,120 are moving statistics."""

    @property
    def minimum_size(self) -> int:
        """The smallest image side, in pixels, that ``tf_keras.applications`` accepts."""
        return 32
