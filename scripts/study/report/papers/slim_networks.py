"""Parameters of the networks of TF-Slim that han2019 and pittman2018 trained, from the shapes of their layers."""

from dataclasses import dataclass

from study.workloads import operations

# ImageNet's images as the networks take them.
IMAGES = {"image_size": 224, "channels": 3, "classes": 1000}
SMALL_IMAGES = {**IMAGES, "image_size": 28}


@dataclass(frozen=True)
class Parameters:
    """Parameters of a network. trained: those with a gradient. all: with moving statistics, as Keras counts them."""

    trained: int
    all: int


def parameters(benchmark: str) -> Parameters:
    """The parameters of the network that the papers trained under this name, at 1,000 classes."""
    layers = operations.list_layers(benchmark, SMALL_IMAGES if benchmark == "lenet" else IMAGES, 0) or []
    trained = sum(layer.parameters for layer in layers)
    return Parameters(trained, trained + sum(layer.statistics for layer in layers))
