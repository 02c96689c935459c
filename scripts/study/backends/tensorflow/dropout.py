"""The seeds of dropout: the masks of a step follow from a run's seed, the rank, the layer and the step alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data import order


def seed_dropout(model: Any, seed: int) -> None:
    """Make the masks of all dropout layers of ``model`` a function of ``seed`` and the optimizer's step."""
    use_seeds(model, order.dropout_seeds(seed))


def use_seeds(model: Any, seeds: Any) -> None:
    """The same with the seeds of the layers. seeds: of `order.dropout_seeds`, an array or an int64 tensor."""
    import tensorflow as tf

    step = model.optimizer.iterations
    layers = model._flatten_layers(include_self=False)  # also of a network within the model
    for index, layer in enumerate(layer for layer in layers if type(layer).__name__ == "Dropout"):
        layer.next_seed = lambda index=index: tf.stack([seeds[index], step])


def seeds_by_rank(seed: int, ranks: int) -> NDArray[np.int64]:
    """The seeds of several ranks of a run, (ranks, layers). seed: the run's."""
    return np.stack([order.dropout_seeds(order.rank_seed(seed, rank)) for rank in range(ranks)])
