"""Emulated ranks: one rank trains as several do, which shows their accuracy without their GPUs.

A step computes the gradients of each emulated rank in turn, averages them and applies them once. Each emulated rank has
the sample order, the part of the samples and the dropout masks of the rank that it stands for. It also has its own
copy of what layers change in training besides the trained weights, such as moving statistics: the model has those of
rank 0 when it is validated, as on real ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from study.backends.tensorflow.gathering import make_gatherer
from study.backends.tensorflow.input import make_epoch_batches, make_pipeline
from study.backends.tensorflow.seeds import draw_seeds_by_rank, set_dropout_seeds
from study.data.order import OrdersByRank, Positions
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition


class EmulatedRanks:
    """The ranks that one rank emulates; replaces the training step of ``model``."""

    def __init__(self, model: Any, samples: SampleSource, run: RunDefinition, state: list[Any]) -> None:
        """samples: of all ranks. model: compiled, with the learning rate of all ranks.

        state: the variables that its layers change in training besides the trained weights.
        """
        import tensorflow as tf

        self._model, self._run = model, run
        self._ranks = run.emulated_ranks
        self._samples = samples
        self._seeds = draw_seeds_by_rank(run.derived.seed, self._ranks)
        self._state, self._states = state, [_copy_for_ranks(variable, self._ranks) for variable in state]
        with tf.device("/CPU:0"):
            self._gather = make_gatherer(samples)
        model.train_step = self._train_step

    def make_batches(self, samples_per_rank: int, first_epoch: int) -> tuple[Any, OrdersByRank | None]:
        """(The training input for Keras, the orders of its samples or None).

        An element has the positions of each rank's batch, shape (batch size, ranks), and their random changes: a batch
        is gathered when its rank has its turn, so that memory does not grow with the ranks. first_epoch: the
        number of epochs already trained.
        """
        import tensorflow as tf

        seeds = range(self._run.derived.seed, self._run.derived.seed + self._ranks)
        buffer = self._run.parameters.get("shuffle_buffer_samples", 0)
        order = OrdersByRank(seeds, first_epoch, buffer) if self._run.benchmark["shuffle"] else None
        batch_size, shape = self._run.derived.batch_size_per_rank, (self._ranks,)
        with tf.device("/CPU:0"):
            if order:
                chosen = make_epoch_batches(
                    self._samples, samples_per_rank, batch_size, order, self._to_all_samples, shape
                )
            else:
                positions = self._to_all_samples(np.repeat(np.arange(samples_per_rank)[:, None], self._ranks, axis=1))
                chosen = tf.data.Dataset.from_tensor_slices((positions,)).batch(batch_size)
        return make_pipeline(chosen, None), order

    def _to_all_samples(self, chosen: Positions) -> Positions:
        """Positions in all samples from those in each rank's samples, both (samples, ranks)."""
        if self._run["sharding"] == "by_rank":  # as in `study.data.samples.select_part`
            return chosen * self._ranks + np.arange(self._ranks)
        return chosen

    def _train_step(self, element: tuple[Any, ...]) -> Any:
        """Make one step of all ranks; returns the metrics of rank 0, as a run on real ranks does."""
        import tensorflow as tf

        model = self._model
        x, y = self._gather_batch(element, 0)
        gradients, predicted = self._compute_gradients(0, x, y)
        self._save_state(tf.constant(0, tf.int64))
        metric_values = [(each, each.read_value()) for metric in model.metrics for each in metric.variables]

        def add_next(rank: Any, sums: list[Any]) -> tuple[Any, list[Any]]:
            self._restore_state(rank)
            rank_gradients, _ = self._compute_gradients(rank, *self._gather_batch(element, rank))
            self._save_state(rank)
            return rank + 1, [one + other for one, other in zip(sums, rank_gradients, strict=True)]

        begin = (tf.constant(1, tf.int64), gradients)
        _, sums = tf.while_loop(lambda rank, _: rank < self._ranks, add_next, begin, parallel_iterations=1)
        self._restore_state(tf.constant(0, tf.int64))
        for variable, value in metric_values:  # metrics are rank 0's, also those that layers and losses update
            variable.assign(value)
        averages = [each * (1 / self._ranks) for each in sums]  # multiplied, as Horovod does
        model.optimizer.apply_gradients(zip(averages, model.trainable_variables, strict=True))
        return model.compute_metrics(x, y, predicted, None)

    def _gather_batch(self, element: tuple[Any, ...], rank: Any) -> tuple[Any, Any]:
        """Gather the batch (x, y) of one rank."""
        import tensorflow as tf

        with tf.device("/CPU:0"):  # where the samples are
            return self._gather(*(of_ranks[:, rank] for of_ranks in element))

    def _restore_state(self, rank: Any) -> None:
        """Give the layers the saved state of a rank."""
        for variable, states in zip(self._state, self._states, strict=True):
            variable.assign(states[rank])

    def _save_state(self, rank: Any) -> None:
        """Save the state of the layers after a rank's turn."""
        import tensorflow as tf

        for variable, states in zip(self._state, self._states, strict=True):
            states.scatter_nd_update(tf.reshape(rank, (1, 1)), variable.read_value()[None])

    def _compute_gradients(self, rank: Any, x: Any, y: Any) -> tuple[list[Any], Any]:
        """(Gradients, predictions) of one rank on its batch."""
        import tensorflow as tf

        set_dropout_seeds(self._model, tf.gather(self._seeds, rank))
        with tf.GradientTape() as tape:
            predicted = self._model(x, training=True)
            total = self._model.compute_loss(x, y, predicted, None)
        gradients = tape.gradient(total, self._model.trainable_variables, unconnected_gradients="zero")
        return [tf.convert_to_tensor(each) for each in gradients], predicted


def _copy_for_ranks(variable: Any, ranks: int) -> Any:
    """Make a variable that holds a copy of ``variable`` for each rank."""
    import tensorflow as tf

    with tf.device(variable.device):
        return tf.Variable(tf.stack([variable.read_value()] * ranks), trainable=False)
