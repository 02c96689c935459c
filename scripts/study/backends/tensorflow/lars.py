"""LARS: momentum SGD whose learning rate differs from layer to layer (You et al., arXiv:1708.03888)."""

from typing import Any

TRUST = 0.001  # the paper's trust coefficient


def make_lars_class() -> Any:
    """Make the Keras optimizer. L2 is part of the loss here, so the gradient has the paper's weight decay already."""
    import tensorflow as tf
    import tf_keras as keras

    class LARS(keras.optimizers.SGD):
        """SGD; the gradient of a layer's weights is scaled by `TRUST` x norm of the weights / norm of the gradient.

        Biases and the variables of batch normalisation, which have one dimension, keep the global learning rate.
        """

        def update_step(self, gradient: Any, variable: Any) -> None:
            if len(variable.shape) > 1:
                weights, change = tf.norm(variable), tf.norm(gradient)
                is_known = (weights > 0) & (change > 0)
                gradient = gradient * tf.where(is_known, TRUST * weights / tf.where(is_known, change, 1.0), 1.0)
            super().update_step(gradient, variable)

    return LARS
