"""ResNet-101 (He et al., arXiv:1512.03385), as ``tf_keras.applications`` has it (han2019, Table I)."""

from study.workloads import resnet50


class Workload(resnet50.Workload):
    """ResNet-101: 44,707,176 parameters at 1,000 classes."""
