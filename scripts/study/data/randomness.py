"""Dropout and shuffling by seed, epoch and step alone, so that a resumed run goes on exactly as if without a break."""

LAYERS = 64  # more than any model has


def dropout(rate):
    """A Keras layer that drops ``rate`` of its inputs in training; `seed_dropout` must be called on its model."""
    import tensorflow as tf
    import tf_keras as keras

    class Dropout(keras.layers.Layer):
        """Keras's own takes its masks from a state that cannot be saved."""

        def call(self, inputs, training=None):
            return tf.nn.experimental.stateless_dropout(inputs, rate, self.next_seed()) if training else inputs

    layer = Dropout()
    layer.rate = rate
    return layer


def seed_dropout(model, seed):
    """Let the masks of all ``model``'s dropout layers follow from ``seed`` and the optimizer's step."""
    import tensorflow as tf

    step = model.optimizer.iterations
    for index, layer in enumerate(layer for layer in model.layers if type(layer).__name__ == "Dropout"):
        layer.next_seed = lambda index=index: tf.stack([tf.cast(seed, tf.int64), step * LAYERS + index])


class EpochOrder:
    """The order of the training samples in the epoch that is set, a different one in each."""

    def __init__(self, seed, epoch=0):
        """epoch: from 0, the one that comes first."""
        import tensorflow as tf

        with tf.device("/CPU:0"):
            self._seed, self._epoch = seed, tf.Variable(epoch, trainable=False, dtype=tf.int64)

    def set(self, epoch):
        """Which epoch comes next."""
        self._epoch.assign(epoch)

    def positions(self, number):
        """The positions 0 to ``number`` - 1, a tensor, in the present epoch's order."""
        import tensorflow as tf

        seed = tf.stack([tf.cast(self._seed, tf.int64), self._epoch])
        return tf.random.experimental.stateless_shuffle(tf.range(number, dtype=tf.int64), seed)
