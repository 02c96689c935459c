"""ResNet-101 (He et al., arXiv:1512.03385), from ``tf_keras.applications`` (han2019, Table I)."""

from study.models import resnet50


class Benchmark(resnet50.Benchmark):
    """ResNet-101: 44,707,176 parameters at 1,000 classes."""

    network = "ResNet101"
