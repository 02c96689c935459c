"""GoogLeNet in Keras."""

from study.workloads import googlenet
from study.workloads.inception_v1 import tensorflow as inception_v1


class Benchmark(googlenet.Workload, inception_v1.Benchmark):
    """GoogLeNet with its Keras model."""
