"""ResNet-101 in Keras, as TF-Slim has it."""

from study.workloads import resnet101
from study.workloads.resnet50 import tensorflow as resnet50


class Benchmark(resnet101.Workload, resnet50.Benchmark):
    """ResNet-101 with its Keras model."""
