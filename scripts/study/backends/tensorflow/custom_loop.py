"""A training loop of this project in place of Keras's ``fit``, under ``training_loop: custom``.

It makes the same steps, validates and calls the same callbacks at the same places. What it leaves out is Keras's own
work around a step: its data handler, its strategy's replicas, and the logs of each step.
"""

from __future__ import annotations

from typing import Any

from study.backends.tensorflow import own_models


def prepare(model: Any) -> None:
    """Give ``model`` a training step written out; measures wrap it as they wrap Keras's.

    A model with a step of its own keeps it.
    """
    import tensorflow as tf

    if own_models.overrides(model, "train_step"):
        return

    def train_step(data: tuple[Any, Any]) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = model.compute_loss(x, y, predicted, None)
        model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
        return model.compute_metrics(x, y, predicted, None)

    model.train_step = train_step


def fit(model: Any, x: Any, validation_data: Any, initial_epoch: int, epochs: int, callbacks: list[Any]) -> None:
    """Train as Keras's ``fit`` does with these arguments. x, validation_data: datasets of batches."""
    import tensorflow as tf
    import tf_keras as keras

    step = tf.function(lambda data: model.train_step(data), reduce_retracing=True)
    called = keras.callbacks.CallbackList(callbacks, model=model, epochs=epochs, verbose=0)
    model.stop_training = False
    called.on_train_begin()
    logs: dict[str, float] = {}
    for epoch in range(initial_epoch, epochs):
        model.reset_metrics()
        called.on_epoch_begin(epoch)
        found: dict[str, Any] = {}
        for number, batch in enumerate(x):
            called.on_train_batch_begin(number)
            found = step(batch)
            called.on_train_batch_end(number)
        logs = {name: float(value) for name, value in found.items()}
        called.on_test_begin()
        tested = model.evaluate(validation_data, verbose=0, return_dict=True)
        logs |= {f"val_{name}": value for name, value in tested.items()}
        called.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    called.on_train_end(logs)
