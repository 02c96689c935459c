"""The training step of a model and its input: on own ranks, on emulated ones, and under a parameter server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from study.backends.base import count_rank_samples, count_rank_steps
from study.backends.tensorflow import model_state, own_models, strategy_input
from study.backends.tensorflow.emulated_ranks import EmulatedRanks
from study.backends.tensorflow.gradient_averaging import get_averaging
from study.backends.tensorflow.input import make_batches
from study.backends.tensorflow.input_measures import InputMeasures
from study.backends.tensorflow.step_measures import StepMeasures
from study.communication.collectives import Collectives
from study.data.order import EpochOrder, OrdersByRank
from study.experiment.definition import RunDefinition
from study.workloads.base import Data


@dataclass(frozen=True)
class Inputs:
    """The input of Keras's ``fit``.

    fit: its arguments that give the samples. order: of the samples, None for a fixed one.
    """

    fit: dict[str, Any]
    order: EpochOrder | OrdersByRank | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, from 0."""
        if self.order:
            self.order.set(epoch)


def prepare_steps(
    model: Any,
    data: Data,
    run: RunDefinition,
    ranks: Collectives,
    measures: StepMeasures,
    epochs: int,
    input_measures: InputMeasures | None,
) -> Inputs:
    """Prepare a model's training step and its input, the samples of Keras's ``fit``.

    epochs: the number of epochs already trained. input_measures: None if the input is not measured.
    """
    batch_size, averaging = run.derived.batch_size_per_rank, get_averaging(ranks)
    changing = model_state.check_state(model, run, (batch_size, *data.train.shape))
    if own_models.overrides(model, "train_step"):
        model_state.check_step(model, run, model_state.describe_batch(data.train), averaging.has_averaged)
    if run.emulated_ranks > 1:
        emulated = EmulatedRanks(model, data.train, run, changing)
        train, orders = emulated.make_batches(count_rank_samples(data, run), epochs)
        return Inputs({"x": train, "validation_data": make_batches(data.validation, batch_size)}, orders)
    if run.parameters.get("training_loop", "keras") == "custom":
        write_out_step(model)
    measures.observe(model, averaging)
    seed, buffer = run.derived.seed + ranks.rank, run.parameters.get("shuffle_buffer_samples", 0)
    order = EpochOrder(seed, epochs, buffer) if run.benchmark["shuffle"] else None
    if run["input_pipeline"] == "keras_arrays":
        return Inputs(_make_arrays(data, batch_size, order), order)
    return Inputs(_make_pipelines(data, run, order, input_measures), order)


def prepare_server_steps(model: Any, data: Data, run: RunDefinition, chief: Any) -> Inputs:
    """Prepare the training step and its input under a parameter server; validation is the local replica's."""
    strategy_input.seed_dropout_by_worker(model, run)
    train = strategy_input.make_creator(data.train, count_rank_samples(data, run), run, chief.registered.drawing)
    return Inputs({"x": train, "steps_per_epoch": count_rank_steps(data, run) * run.ranks})


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


def _make_pipelines(
    data: Data, run: RunDefinition, order: EpochOrder | None, input_measures: InputMeasures | None
) -> dict[str, Any]:
    """Make the arguments of ``fit`` under ``input_pipeline: tf_data``."""
    batch_size = run.derived.batch_size_per_rank
    prefetched, at_once = run.parameters.get("prefetch_batches", 1), run.parameters.get("map_parallel_calls", 0)
    samples = data.train.keep_in_memory() if run.parameters.get("cache_samples") else data.train
    train = make_batches(samples, batch_size, order, input_measures, prefetched, at_once)
    return {"x": train, "validation_data": make_batches(data.validation, batch_size)}


def _make_arrays(data: Data, batch_size: int, order: EpochOrder | None) -> dict[str, Any]:
    """Make the arguments of ``fit`` under ``keras_arrays``, as in the benchmarks' scripts; Keras shuffles itself."""
    x, y = data.train.arrays()
    return {
        "x": x,
        "y": y,
        "batch_size": batch_size,
        "shuffle": order is not None,
        "validation_data": data.validation.arrays(),
    }
