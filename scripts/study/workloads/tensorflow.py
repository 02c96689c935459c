"""Layers that the Keras models of several workloads share.

TensorFlow is imported when it is used: a user's own model in one file imports this module in the plan.
"""

from typing import Any


def dropout(rate: float) -> Any:
    """A Keras layer that drops ``rate`` of its inputs in training, by masks that a resumed run repeats exactly.

    `study.backends.tensorflow.seeds.seed_dropout` must be called on its model.
    """
    import tensorflow as tf
    import tf_keras as keras

    class Dropout(keras.layers.Layer):
        """Keras's own layer draws its masks from a state that cannot be saved."""

        @tf.autograph.experimental.do_not_convert  # no control flow on tensors, which the first step would search for
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            return tf.nn.experimental.stateless_dropout(inputs, rate, self.next_seed()) if training else inputs

    layer = Dropout()
    layer.rate = rate
    return layer
