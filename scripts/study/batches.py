"""Batches for Keras from arrays in memory."""


def batches(x, y, batch_size, shuffle):
    """A ``tf.data.Dataset`` of batches, shuffled anew each epoch or in order; the last one may be smaller.

    x, y: arrays with samples first; they are copied once. What Keras makes of arrays handed to ``fit`` is the
    same but for tf.data's autotuning, whose thread ends only after its next sleep: with it ``fit`` returned up
    to ten seconds after its last epoch, at random, on some ranks and not on others.
    """
    import tensorflow as tf

    with tf.device("/CPU:0"):
        x, y = tf.convert_to_tensor(x), tf.convert_to_tensor(y)
        order = tf.data.Dataset.range(len(x))
        if shuffle:
            order = order.shuffle(len(x))
        dataset = order.batch(batch_size).map(lambda chosen: (tf.gather(x, chosen), tf.gather(y, chosen)))
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(1).with_options(options)
