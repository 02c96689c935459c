"""The training step of a model and its input: on own ranks, on emulated ones, and under a parameter server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from study.backends.base import rank_samples, rank_steps
from study.backends.tensorflow import model_state, own_models, strategy_input
from study.backends.tensorflow.emulated_ranks import EmulatedRanks
from study.backends.tensorflow.gradient_averaging import averaging_of
from study.backends.tensorflow.input import batches
from study.backends.tensorflow.input_measures import InputMeasures
from study.backends.tensorflow.step_measures import StepMeasures
from study.communication.collectives import Collectives
from study.data.order import EpochOrder, OrdersByRank
from study.experiment.definition import RunDefinition
from study.workloads.base import Data


@dataclass(frozen=True)
class Inputs:
    """fit: the arguments of Keras's ``fit`` that give the samples. order: of the samples, None for a fixed one."""

    fit: dict[str, Any]
    order: EpochOrder | OrdersByRank | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, from 0."""
        if self.order:
            self.order.set(epoch)


def prepared(
    model: Any,
    data: Data,
    run: RunDefinition,
    ranks: Collectives,
    measures: StepMeasures,
    epochs: int,
    of_input: InputMeasures | None,
) -> Inputs:
    """The input of Keras's ``fit``; prepares the model's training step for it.

    epochs: the number of epochs already trained. of_input: measures of the input, if it is measured.
    """
    batch_size, averaging = run.derived.batch_size_per_rank, averaging_of(ranks)
    changing = model_state.check_state(model, run, (batch_size, *data.train.shape))
    if own_models.overrides(model, "train_step"):
        model_state.check_step(model, run, model_state.batch_of(data.train), averaging.has_averaged)
    if run.emulated_ranks > 1:
        emulated = EmulatedRanks(model, data.train, run, changing)
        train, orders = emulated.batches(rank_samples(data, run), epochs)
        return Inputs({"x": train, "validation_data": batches(data.validation, batch_size)}, orders)
    if run.parameters.get("training_loop", "keras") == "custom":
        write_out_step(model)
    measures.observe(model, averaging)
    seed, buffer = run.derived.seed + ranks.rank, run.parameters.get("shuffle_buffer_samples", 0)
    order = EpochOrder(seed, epochs, buffer) if run.benchmark["shuffle"] else None
    if run["input_pipeline"] == "keras_arrays":
        return Inputs(_arrays(data, batch_size, order), order)
    return Inputs(_pipelines(data, run, order, of_input), order)


def of_servers(model: Any, data: Data, run: RunDefinition, chief: Any) -> Inputs:
    """The same under a parameter server, without validation: that is the local replica's."""
    strategy_input.seed_dropout_by_worker(model, run)
    train = strategy_input.creator(data.train, rank_samples(data, run), run, chief.registered.drawing)
    return Inputs({"x": train, "steps_per_epoch": rank_steps(data, run) * run.ranks})


def write_out_step(model: Any) -> None:
    """Give ``model`` a training step written out; measures wrap it as they wrap Keras's.

    It leaves out Keras's own work around a step: its data handler, its strategy's replicas, and the logs of each step.
    A model with a step of its own keeps it.
    """
    import tensorflow as tf

    if own_models.overrides(model, "train_step"):
        return

    def train_step(data: tuple[Any, Any]) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = model.compute_loss(x, y, predicted, None)
        model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
        return model.compute_metrics(x, y, predicted, None)

    model.train_step = train_step


def _pipelines(
    data: Data, run: RunDefinition, order: EpochOrder | None, of_input: InputMeasures | None
) -> dict[str, Any]:
    """Under ``input_pipeline: tf_data``."""
    batch_size = run.derived.batch_size_per_rank
    prefetched, at_once = run.parameters.get("prefetch_batches", 1), run.parameters.get("map_parallel_calls", 0)
    samples = data.train.cached() if run.parameters.get("cache_samples") else data.train
    train = batches(samples, batch_size, order, of_input, prefetched, at_once)
    return {"x": train, "validation_data": batches(data.validation, batch_size)}


def _arrays(data: Data, batch_size: int, order: EpochOrder | None) -> dict[str, Any]:
    """Under ``keras_arrays``, as in the benchmarks' own scripts; Keras shuffles with its own seed."""
    x, y = data.train.arrays()
    return {
        "x": x,
        "y": y,
        "batch_size": batch_size,
        "shuffle": order is not None,
        "validation_data": data.validation.arrays(),
    }
