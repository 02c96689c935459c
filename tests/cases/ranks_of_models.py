"""Training runs of NT3's data with other models, on real Horovod ranks: ``ranks_of_models.py FOLDER MODEL ...``.

One after the other in the same processes, as to import TensorFlow takes longer than to train. A run that fails is the
last one.
"""

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


def train(folder, name):
    """Train one run."""
    (folder / "ranks").mkdir(exist_ok=True)
    nt3.Benchmark.build_model = lambda self, shape: MODELS[name](shape)
    rank.run_rank(RunDefinition.read(folder / "run.yaml"), folder, now(), Horovod)


def main():
    """Train each run, with one start of Horovod: at another one, a rank could meet another rank's former address."""
    Horovod.close = lambda self: None
    for folder, name in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        train(Path(folder), name)


if __name__ == "__main__":
    exit_with_message(main)
