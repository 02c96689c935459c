"""ResNet-101 from ``tf_keras.applications``."""

from study.workloads import resnet101
from study.workloads.resnet50 import tensorflow as resnet50


class Benchmark(resnet101.Workload, resnet50.Benchmark):
    """ResNet-101 with its Keras model."""

    network = "ResNet101"
