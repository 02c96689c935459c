"""A workload's Keras model, compiled with the distributed optimizer."""

from __future__ import annotations

from typing import Any

from study.backends.tensorflow import (
    data_format,
    initial_weights,
    lars,
    layer_settings,
    metrics,
    own_models,
    precision,
    seeds,
)
from study.backends.tensorflow.dropout import seed_dropout
from study.backends.tensorflow.gradient_averaging import averaging_of
from study.communication.collectives import Collectives
from study.data import order
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition
from study.workloads.base import Benchmark

MOST_SEEDS = 1 << 31  # that NumPy's and TensorFlow's global generators both take


def compile_model(
    benchmark: Benchmark,
    run: RunDefinition,
    ranks: Collectives,
    shape: tuple[int, ...],
) -> Any:
    """Build and compile the model with the distributed optimizer; all its variables exist afterwards.

    Weights, dropout and shuffling are seeded by repeat and rank: ranks differ until the broadcast. ranks:
    whose gradients are averaged, and by whose number the learning rate is scaled. shape: of one sample's input.
    """
    import tf_keras as keras

    own_seed = order.rank_seed(run.derived.seed, ranks.rank)
    seeds.set_random_seed(own_seed % MOST_SEEDS)
    with own_models.fresh_names(), precision.policy(run):
        model = own_models.built(benchmark, run, shape)
        model = data_format.arranged(model, run)
    initial_weights.draw(model, run.derived.seed + ranks.rank)
    layer_settings.set_batch_norm_momentum(model, run)
    precision.keep_output_in_float32(model, run)
    size = ranks.size * run.emulated_ranks
    optimizers = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}
    if run["learning_rate_by_layer"] == "lars":
        optimizers["sgd"] = lars.optimizer_class()
    further = {name: run.benchmark[name] for name in ("momentum",) if name in run.benchmark}
    optimizer = optimizers[run.benchmark["optimizer"]](learning_rate=learning_rate.scaled(run, size), **further)
    optimizer = averaging_of(ranks).distributed_optimizer(optimizer, **_gradient_options(run))
    make_momentum_variable(optimizer, run)
    optimizer = precision.with_loss_scale(optimizer, run)
    model.compile(loss=run.benchmark["loss"], optimizer=optimizer, metrics=metrics.made(benchmark))
    own_models.keep_compiled(model, optimizer, run)
    optimizer.build(model.trainable_variables)
    seed_dropout(model, own_seed)
    return model


def _gradient_options(run: RunDefinition) -> dict[str, Any]:
    """The options of the distributed optimizer that differ from their defaults."""
    options = {"compression": ("gradient_compression", "none"), "backward_passes": ("backward_passes_per_step", 1)}
    found = {option: run.parameters.get(key, default) for option, (key, default) in options.items()}
    return {option: value for option, value in found.items() if value != options[option][1]}


def make_momentum_variable(optimizer: Any, run: RunDefinition) -> None:
    """Let the momentum of ``optimizer`` (SGD) be changed while it trains, where the schedule will."""
    import tensorflow as tf

    if run.parameters.get("warmup") == "momentum_corrected":
        optimizer.momentum = tf.Variable(optimizer.momentum, trainable=False, dtype=tf.float32)
