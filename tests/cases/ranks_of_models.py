"""A training run of NT3's data with another model, on real Horovod ranks: ``ranks_of_models.py FOLDER MODEL``."""

import sys
from pathlib import Path

import models_to_judge

from study.backends.tensorflow.horovod import Horovod
from study.core.errors import exit_with_message
from study.experiment.definition import RunDefinition
from study.instruments.phases import now
from study.training import rank
from study.workloads.nt3 import tensorflow as nt3


def batch_normalisation(shape):
    from tf_keras import Sequential, layers

    return Sequential([layers.Input(shape), layers.Flatten(), layers.BatchNormalization(),
                       layers.Dense(4, activation="relu"), layers.Dense(2, activation="softmax")])  # fmt: skip


def embedding(shape):
    from tf_keras import Sequential, layers

    return Sequential([layers.Input(shape), layers.Flatten(), layers.Embedding(16, 2), layers.Flatten(),
                       layers.Dense(2, activation="softmax")])  # fmt: skip


def own_step(shape):
    """A penalty that only its own training step knows; its gradients are applied without Keras's minimize."""
    import tensorflow as tf
    import tf_keras as keras

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.flat, self.out = keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")

        def call(self, x, training=None):
            return self.out(self.flat(x))

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted) + 3.0 * tf.reduce_mean(tf.square(predicted))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return self.compute_metrics(x, y, predicted, None)

    model = Own()
    model.build((None, *shape))
    return model


OWN = (batch_normalisation, embedding, own_step, models_to_judge.stops, models_to_judge.accumulates,
       models_to_judge.applies_twice)  # fmt: skip
MODELS = {each.__name__: each for each in OWN}

if __name__ == "__main__":
    folder, name = Path(sys.argv[1]), sys.argv[2]
    (folder / "ranks").mkdir(exist_ok=True)
    nt3.Benchmark.build_model = lambda self, shape: MODELS[name](shape)
    run = RunDefinition.read(folder / "run.yaml")
    exit_with_message(lambda: rank.run_rank(run, folder, now(), Horovod))
