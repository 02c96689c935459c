"""A workload's Keras model, compiled with the distributed optimizer."""

from __future__ import annotations

from typing import Any

from study.backends.tensorflow import (
    initial_weights,
    layer_settings,
    metrics,
    own_models,
    precision,
    seeds,
)
from study.backends.tensorflow.gradient_averaging import get_averaging
from study.backends.tensorflow.seeds import seed_dropout
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

    own_seed = order.derive_rank_seed(run.derived.seed, ranks.rank)
    seeds.set_random_seed(own_seed % MOST_SEEDS)
    with own_models.reset_keras_names(), precision.set_policy(run):
        model = own_models.build_model(benchmark, run, shape)
    initial_weights.draw_weights(model, run.derived.seed + ranks.rank)
    layer_settings.set_batch_norm_momentum(model, run)
    precision.keep_output_in_float32(model, run)
    size = ranks.size * run.emulated_ranks
    optimizers = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}
    further = {name: run.benchmark[name] for name in ("momentum",) if name in run.benchmark}
    optimizer = optimizers[run.benchmark["optimizer"]](learning_rate=learning_rate.scale_rate(run, size), **further)
    optimizer = get_averaging(ranks).distribute_optimizer(optimizer, **_choose_gradient_options(run))
    optimizer = precision.add_loss_scale(optimizer, run)
    model.compile(loss=run.benchmark["loss"], optimizer=optimizer, metrics=metrics.make_metrics(benchmark))
    own_models.check_optimizer_kept(model, optimizer, run)
    optimizer.build(model.trainable_variables)
    seed_dropout(model, own_seed)
    return model


def _choose_gradient_options(run: RunDefinition) -> dict[str, Any]:
    """The options of the distributed optimizer that the run's keys set."""
    options = {"compression": ("gradient_compression", "none"), "backward_passes": ("backward_passes_per_step", 1)}
    values = {option: run.parameters.get(key, default) for option, (key, default) in options.items()}
    return {option: value for option, value in values.items() if value != options[option][1]}
