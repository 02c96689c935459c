"""Models whose promises a plan keeps or refuses; each function takes the shape of a sample's input."""


def _keras():
    import tensorflow as tf
    import tf_keras as keras

    return tf, keras, keras.layers


def _ended(*hidden):
    """A sequence of layers, with the head of NT3."""
    _, keras, layers = _keras()
    return keras.Sequential([*hidden, layers.Dense(2, activation="softmax")])


def _with_step(step, shape, test_step=None):
    """A dense network with a training step of its own: ``step(model, data, usual)``."""
    _, keras, layers = _keras()

    class Own(keras.Model):
        def train_step(self, data):
            return step(self, data, super().train_step)

        def test_step(self, data):
            return (test_step or (lambda found: found))(super().test_step(data))

    given = layers.Input(shape)
    return Own(given, layers.Dense(2, activation="softmax")(layers.Dense(4)(layers.Flatten()(given))))


def _layer(call, shape):
    """A network with a layer that does ``call(layer, x, training)``."""
    _, _, layers = _keras()

    class Own(layers.Layer):
        def call(self, x, training=None):
            return call(self, x, training)

    return _ended(layers.Input(shape), layers.Flatten(), Own())


def _gradients(model, data):
    tf, _, _ = _keras()
    x, y = data
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=True))
    return loss, tape.gradient(loss, model.trainable_variables)


def plain(shape):
    _, _, layers = _keras()
    return _ended(layers.Input(shape), layers.Flatten(), layers.Dense(4))


def penalties(shape):
    """Losses of layers, and regularisers of weights and activity."""
    tf, _, layers = _keras()

    def call(layer, x, training):
        layer.add_loss(0.1 * tf.reduce_mean(tf.math.reduce_variance(x, axis=0)))
        return x

    hidden = _layer(call, shape).layers[:-1]
    return _ended(layers.Input(shape), *hidden, layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l2"))


def several_outputs(shape):
    _, keras, layers = _keras()
    given = layers.Input(shape)
    flat = layers.Flatten()(given)
    return keras.Model(given, [layers.Dense(2, name="aux")(flat), layers.Dense(2, name="main")(flat)])


def drawn_by_numpy(shape):
    """Fixed random features, a constant of the model."""
    import numpy as np

    tf, _, layers = _keras()
    drawn = np.random.normal(size=(shape[0], 8)).astype(np.float32)
    return _ended(layers.Input(shape), layers.Flatten(), layers.Lambda(lambda x: tf.sin(x @ drawn)))


def accumulates(shape):
    """Applies its gradients in every second step."""
    tf, _, _ = _keras()

    def step(model, data, usual):
        loss, gradients = _gradients(model, data)
        model.number.assign_add(1)

        def apply():
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return tf.constant(0)

        tf.cond(model.number % 2 == 0, apply, lambda: tf.constant(0))
        return {"loss": loss}

    model = _with_step(step, shape)
    model.number = tf.Variable(0, trainable=False)
    return model


def applies_twice(shape):
    def step(model, data, usual):
        usual(data)
        return usual(data)

    return _with_step(step, shape)


def stops(shape):
    def step(model, data, usual):
        model.stop_training = True
        return usual(data)

    return _with_step(step, shape)


def second_optimizer(shape):
    _, keras, _ = _keras()
    second = keras.optimizers.SGD(0.01)

    def step(model, data, usual):
        loss, gradients = _gradients(model, data)
        pairs = list(zip(gradients, model.trainable_variables, strict=True))
        model.optimizer.apply_gradients(pairs[:2])
        second.apply_gradients(pairs[2:])
        return {"loss": loss}

    model = _with_step(step, shape)
    second.build(model.trainable_variables[2:])
    return model


def assigned_weights(shape):
    def step(model, data, usual):
        loss, gradients = _gradients(model, data)
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
            variable.assign_sub(0.01 * gradient)
        return {"loss": loss}

    return _with_step(step, shape)


def noise_in_step(shape):
    tf, _, _ = _keras()
    return _with_step(lambda model, data, usual: usual((data[0] + tf.random.normal(tf.shape(data[0])), data[1])), shape)


def state_in_step(shape):
    tf, _, _ = _keras()
    calls = [tf.Variable(0.0, trainable=False)]

    def step(model, data, usual):
        calls[0].assign_add(1.0)
        return usual((data[0] * calls[0], data[1]))

    return _with_step(step, shape)


def no_loss(shape):
    return _with_step(lambda model, data, usual: {"penalty": usual(data)["loss"]}, shape)


def no_test_loss(shape):
    return _with_step(lambda model, data, usual: usual(data), shape, lambda found: {"accuracy": found["accuracy"]})


def logs_an_epoch(shape):
    return _with_step(lambda model, data, usual: {**usual(data), "epoch": 7.0}, shape)


def metric_of_a_layer(shape):
    tf, _, _ = _keras()

    def call(layer, x, training):
        layer.add_metric(tf.reduce_mean(x), name="precision")
        return x

    return _layer(call, shape)


def output_named_test(shape):
    _, keras, layers = _keras()
    given = layers.Input(shape)
    flat = layers.Flatten()(given)
    return keras.Model(given, [layers.Dense(2, name="test")(flat), layers.Dense(2, name="main")(flat)])


def several_inputs(shape):
    _, keras, layers = _keras()
    given = [layers.Input(shape), layers.Input(shape)]
    return keras.Model(given, layers.Dense(2)(layers.Flatten()(given[0] + given[1])))


def stateful(shape, batch=20):
    _, _, layers = _keras()
    return _ended(layers.Input(batch_shape=(batch, *shape)), layers.SimpleRNN(3, stateful=True))


def float64_layer(shape):
    _, _, layers = _keras()
    return _ended(layers.Input(shape), layers.Flatten(), layers.Dense(4, dtype="float64"))


def float16_policy(shape):
    _, keras, _ = _keras()
    keras.mixed_precision.set_global_policy("mixed_float16")
    return plain(shape)


def seeded(shape):
    tf, _, _ = _keras()
    tf.random.set_seed(7)
    return plain(shape)


def synchronized(shape):
    _, _, layers = _keras()
    return _ended(layers.Input(shape), layers.Flatten(), layers.BatchNormalization(synchronized=True))


def drawn_by_tensorflow(shape):
    tf, _, layers = _keras()
    drawn = tf.random.normal((shape[0], 8))
    return _ended(layers.Input(shape), layers.Flatten(), layers.Lambda(lambda x: tf.sin(x @ drawn)))


def rank_in_its_size(shape):
    import os

    _, _, layers = _keras()
    return _ended(layers.Input(shape), layers.Flatten(), layers.Dense(4 + int(os.environ["HOROVOD_RANK"])))


def numpy_in_a_layer(shape):
    import numpy as np

    tf, _, _ = _keras()

    def call(layer, x, training):
        drawn = tf.numpy_function(lambda n: np.random.normal(size=n).astype(np.float32), [tf.shape(x)], tf.float32)
        drawn.set_shape(x.shape)
        return x + drawn if training else x

    return _layer(call, shape)


def drawn_when_traced(shape):
    import random

    return _layer(lambda layer, x, training: x * random.random() if training else x, shape)


def own_loss(shape):
    tf, keras, layers = _keras()

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return tf.reduce_mean((y - y_pred) ** 2)

    given = layers.Input(shape)
    return Own(given, layers.Dense(2)(layers.Flatten()(given)))
