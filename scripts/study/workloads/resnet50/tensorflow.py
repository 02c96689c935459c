"""ResNet-50 from ``tf_keras.applications``."""

from typing import Any

import tf_keras as keras

from study.workloads import resnet50
from study.workloads.images import BATCH_NORM_DECAY
from study.workloads.images.tensorflow import ImageBenchmark, l2


class Benchmark(resnet50.Workload, ImageBenchmark):
    """ResNet-50 with its Keras model."""

    network = "ResNet50"  # in ``tf_keras.applications``

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras network without trained weights, with L2 on all its kernels."""
        make = getattr(keras.applications, self.network)
        model = make(weights=None, input_shape=shape, classes=self.spec["model"]["classes"])
        return clone_with_settings(model, self.spec["model"])


def clone_with_settings(network: Any, model: dict[str, Any]) -> Any:
    """Clone a network with L2 and another decay of moving statistics, which `keras.applications` cannot set."""
    regulariser = keras.regularizers.serialize(l2(model)) if model["l2"] else None

    def clone_layer(layer: Any) -> Any:
        settings = layer.get_config()
        if "kernel_regularizer" in settings:
            settings["kernel_regularizer"] = regulariser
        if isinstance(layer, keras.layers.BatchNormalization):
            settings["momentum"] = BATCH_NORM_DECAY
        return layer.__class__.from_config(settings)

    return keras.models.clone_model(network, clone_function=clone_layer)
