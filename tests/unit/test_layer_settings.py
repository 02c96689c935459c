"""What a run changes in the layers of any model: batch normalisation's momentum, and penalties in a collapse."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from examples import define, expand
from fake_communicator import FakeCommunicator

from study.backends.tensorflow import layer_settings
from study.experiment import learning_rate
from study.training.schedule import Schedule

STEPS = 2  # of an epoch: 8 samples in batches of 4
X = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)
Y = np.eye(2, dtype=np.float32)[np.arange(8) % 2]


def nested(has_norm=True):
    """Layers within a layer: each kind of penalty, and two layers of batch normalisation."""
    norms = [keras.layers.BatchNormalization(momentum=momentum) for momentum in (0.99, 0.7) if has_norm]
    penalised = keras.layers.Dense(4, kernel_regularizer=lambda weights: 0.5 * tf.reduce_sum(tf.abs(weights)))
    last = keras.layers.Dense(2, kernel_regularizer="l2", activation="softmax")
    inner = keras.Sequential([penalised, *norms[:1]])
    return keras.Sequential([keras.layers.Input((3,)), inner, *norms[1:], last])


def of(**parameters):
    return types.SimpleNamespace(parameters=parameters, benchmark={"name": "wave"})


@pytest.mark.parametrize("momentum", [0.95, 0.5])
def test_the_momentum_of_batch_normalisation_is_the_key_s(momentum):
    """One batch: the moving mean is the momentum times the old one, 0, and the rest the batch's."""
    model = nested()
    layer_settings.set_batch_norm_momentum(model, of(batch_norm_momentum=momentum))
    first = model.layers[0].layers[0]
    expected = (1 - momentum) * first(X).numpy().mean(axis=0)
    model(X, training=True)
    assert model.layers[0].layers[1].moving_mean.numpy() == pytest.approx(expected, abs=1e-6)
    assert model.layers[1].momentum == momentum


def penalties(model):
    """By hand: 0.5 x the absolute values of the inner layer's weights, and 0.01 x the squares of the last one's."""
    inner, last = model.layers[0].layers[0].kernel.numpy(), model.layers[-1].kernel.numpy()
    return 0.5 * np.abs(inner).sum() + 0.01 * np.square(last).sum()


def collapsing(epochs=4, decay_epochs=2):
    (run,) = expand(scaling="weak", epochs=epochs, gpus=1, learning_rate_decay="collapsed", decay_epochs=decay_epochs)
    return define(run)


def test_all_penalties_are_multiplied_and_the_factor_is_no_weight():
    model = nested()
    before = len(model.weights)
    factor = layer_settings.add_penalty_factor(model)
    assert float(sum(model.losses)) == pytest.approx(penalties(model), rel=1e-5)
    factor.assign(2.0)
    assert float(sum(model.losses)) == pytest.approx(2 * penalties(model), rel=1e-5)
    assert len(model.weights) == before


@pytest.mark.slow
def test_the_factor_of_penalties_is_the_loss_s():
    """With a learning rate of 0 each loss is a constant: the cross-entropy plus the penalties, once or twice."""
    model = nested(has_norm=False)
    model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.SGD(0.0))
    once, entropy = penalties(model), float(keras.losses.CategoricalCrossentropy()(Y, model(X)))
    factor = layer_settings.add_penalty_factor(model)
    for times in (1, 2, 1):
        factor.assign(times)
        assert model.train_on_batch(X, Y) == pytest.approx(entropy + once * times, rel=1e-4)


@pytest.mark.parametrize("resumed", [0, 3])
def test_a_collapse_doubles_the_penalties_in_its_steps_and_not_in_validation(resumed):
    """The last two of four epochs, also of a run that resumes within the collapse."""
    held, factors = [1.0], []
    trainer = types.SimpleNamespace(set_penalty_factor=held.append, set_learning_rate=lambda rate: None)
    schedule = Schedule(trainer, collapsing(), FakeCommunicator(), STEPS, [0.5] * resumed)
    for _ in range(resumed, 4):
        schedule.begin_epoch()
        steps = []
        for _ in range(STEPS):
            schedule.apply_schedule()
            steps.append(held[-1])
        schedule.end_steps()
        factors.append((steps, held[-1]))
        schedule.end_epoch(0.5)
    assert factors == [([2.0 if epoch >= 2 else 1.0] * STEPS, 1.0) for epoch in range(resumed, 4)]


def test_the_collapse_begins_with_its_last_epochs():
    assert learning_rate.find_collapse_epoch(collapsing(8, 3)) == 5
    (run,) = expand(scaling="weak", epochs=8, gpus=1)
    assert learning_rate.find_collapse_epoch(define(run)) is None
