"""Mixed precision: layers compute in 16 bits, under the grid key ``precision``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from study.experiment.definition import RunDefinition


def of(run: RunDefinition) -> str:
    """Keras's name of the run's policy."""
    return run.parameters.get("precision", "float32")


@contextlib.contextmanager
def policy(run: RunDefinition) -> Iterator[None]:
    """In the block, layers are made with the run's policy; their weights are float32 with each."""
    import tf_keras as keras

    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(of(run))
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def keep_output_in_float32(model: Any, run: RunDefinition) -> None:
    """Let the last layer compute in float32, so that the loss is not rounded to 16 bits (Keras's guide)."""
    if of(run) != "float32":
        list(model._flatten_layers(include_self=False))[-1]._set_dtype_policy("float32")


def with_loss_scale(optimizer: Any, run: RunDefinition) -> Any:
    """``optimizer``; with float16 in Keras's wrapper that scales the loss, so that small gradients do not vanish."""
    import tf_keras as keras

    return keras.mixed_precision.LossScaleOptimizer(optimizer) if of(run) == "mixed_float16" else optimizer
