"""ResNet-50 (He et al., arXiv:1512.03385), from ``tf_keras.applications`` (han2019, Table I)."""

from typing import Any

from study.models import images


class Benchmark(images.ImageBenchmark):
    """ResNet-50: 25,636,712 parameters at 1,000 classes, of which 53,120 are moving statistics."""

    network = "ResNet50"

    @property
    def minimum_size(self) -> int:
        """As ``tf_keras.applications`` asks for."""
        return 32

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """The network without trained weights; L2 on all its kernels."""
        import tf_keras as keras

        make = getattr(keras.applications, self.network)
        model = make(weights=None, input_shape=shape, classes=self.spec["model"]["classes"])
        return with_settings(model, self.spec["model"])


def with_settings(network: Any, model: dict[str, Any]) -> Any:
    """The same layers with L2 and the moving statistics' decay: `keras.applications` has no arguments for them."""
    import tf_keras as keras

    regulariser = keras.regularizers.serialize(images.l2(model)) if model["l2"] else None

    def again(layer: Any) -> Any:
        settings = layer.get_config()
        if "kernel_regularizer" in settings:
            settings["kernel_regularizer"] = regulariser
        if isinstance(layer, keras.layers.BatchNormalization):
            settings["momentum"] = images.BATCH_NORM_DECAY
        return layer.__class__.from_config(settings)

    return keras.models.clone_model(network, clone_function=again)
