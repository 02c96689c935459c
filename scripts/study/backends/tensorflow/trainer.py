"""A workload's Keras model with its optimizer, as a `study.backends.base.Trainer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import Hooks, State, count_rank_steps
from study.backends.tensorflow import keras_fit, layer_settings, steps
from study.backends.tensorflow.build import compile_model
from study.backends.tensorflow.gradient_averaging import get_averaging
from study.backends.tensorflow.input import make_batches
from study.backends.tensorflow.input_measures import InputMeasures
from study.backends.tensorflow.local_replica import LocalReplica
from study.backends.tensorflow.step_measures import FiniteSteps, StepMeasures
from study.communication.collectives import Collectives
from study.communication.roles import get_strategy
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import find_collapse_epoch
from study.machines.run_layout import PARAMETER_SERVER
from study.workloads.base import Benchmark, Data


class KerasTrainer:
    """The model of one rank; under a parameter server, the model of all workers."""

    def __init__(self, workload: Benchmark, run: RunDefinition, ranks: Collectives, data: Data) -> None:
        self._run, self._ranks, self._data = run, ranks, data
        self._averaging = get_averaging(ranks)
        strategy = self._averaging.strategy
        self._replica = LocalReplica(workload, run, data.train.shape) if strategy else None
        with strategy.scope() if strategy else contextlib.nullcontext():
            self.model = compile_model(workload, run, ranks, data.train.shape)
        self.parameters = self.model.count_params()
        self.trainable_parameters = sum(int(np.prod(each.shape)) for each in self.model.trainable_variables)
        self.makes_steps = get_strategy(run) != PARAMETER_SERVER  # whose workers make them
        self.runs_epochs = bool(strategy) or run.parameters.get("training_loop", "keras") == "keras"
        self._steps = count_rank_steps(data, run)
        self.steps_per_epoch = self._steps if self.makes_steps else self._steps * run.ranks
        self._measures = StepMeasures(run, self._steps)
        self._input_measures: InputMeasures | None = None
        self._penalty: Any = None
        self._evaluated: dict[int, Any] = {}  # batches by sample source, which may be evaluated after every epoch
        self._inputs: steps.Inputs
        self._finite: FiniteSteps
        self._step: Any = None

    def _get_variables(self) -> dict[str, Any]:
        """The variables of `get_state` by name. Keras's names repeat, so each begins with a number."""
        every = [*self.model.variables, *self.model.optimizer.variables]
        return {f"{number:04d} {each.name}": each for number, each in enumerate(every)}

    def get_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays of `get_state`, by name."""
        return {name: tuple(each.shape) for name, each in self._get_variables().items()}

    def get_state(self) -> State:
        """Copies of the variables of the model and its optimizer, by name."""
        return {name: each.numpy() for name, each in self._get_variables().items()}

    def load_state(self, state: State) -> None:
        """Assign arrays of `get_state` to the model and its optimizer."""
        for name, variable in self._get_variables().items():
            variable.assign(state[name])

    def get_weights(self) -> Iterator[NDArray[Any]]:
        """All variables of the model, one copy at a time."""
        return (each.numpy() for each in self.model.variables)

    def get_trained_weights(self) -> Iterator[NDArray[Any]]:
        """The weights that the optimizer changes, without moving statistics, which differ between ranks."""
        return (each.numpy() for each in self.model.trainable_variables)

    def broadcast_state(self) -> None:
        """Give all ranks the first one's state; under a strategy, the local replica's weights."""
        if self._replica:
            self._replica.attach(self.model)
        self._averaging.broadcast_variables(list(self._get_variables().values()))

    def begin_training(self, epochs: int) -> None:
        """Check the model, add measures to its training step, and make its input."""
        streamed = self._data.train.is_streamed and self._run.emulated_ranks == 1 and not self._replica
        self._input_measures = InputMeasures() if streamed else None
        if self._replica:
            self._inputs = steps.prepare_server_steps(self.model, self._data, self._run, self._ranks)
        else:
            self._inputs = steps.prepare_steps(
                self.model, self._data, self._run, self._ranks, self._measures, epochs, self._input_measures
            )
        self._finite = FiniteSteps(self.model)
        if find_collapse_epoch(self._run) is not None:
            self._penalty = layer_settings.add_penalty_factor(self.model)

    def train_epoch(self, epoch: int, begin_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch, without what Keras does around each."""
        import tensorflow as tf

        if self._step is None:
            self._step = tf.function(lambda data: self.model.train_step(data), reduce_retracing=True)
        self._inputs.set_epoch(epoch)
        self.model.reset_metrics()
        logs: dict[str, Any] = {}
        for batch in self._inputs.fit["x"]:
            begin_step()
            logs = self._step(batch)
        return {name: float(value) for name, value in logs.items()}

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """Run the epochs with Keras's ``fit``."""
        fit_callback = keras_fit.make_callback(hooks, self._inputs, not self._replica)
        self.model.fit(**self._inputs.fit, verbose=0, initial_epoch=first, epochs=epochs, callbacks=[fit_callback])

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``; under a strategy, of the local replica with the model's weights."""
        if self._replica:
            return self._replica.evaluate(samples)
        if id(samples) not in self._evaluated:
            self._evaluated[id(samples)] = make_batches(samples, self._run.derived.batch_size_per_rank)
        return self.model.evaluate(self._evaluated[id(samples)], verbose=0, return_dict=True)

    def make_batches(self, samples: SampleSource) -> Any:
        """Make a ``tf.data.Dataset`` of batches; each iteration over a stream gives its next epoch."""
        return make_batches(samples, self._run.derived.batch_size_per_rank)

    def predict(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """Predict ``samples``: (right outputs, outputs of the model), batch by batch."""
        for x, y, *_ in make_batches(samples, self._run.derived.batch_size_per_rank):
            yield np.asarray(y), self.model.predict_on_batch(x)

    def step(self, x: Any, y: Any) -> None:
        """Make one step with Keras's ``train_on_batch``."""
        self.model.train_on_batch(x, y)

    def get_learning_rate(self) -> float:
        """The optimizer's learning rate."""
        import tf_keras as keras

        return float(keras.backend.get_value(self.model.optimizer.learning_rate))

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.model.optimizer.learning_rate.assign(rate)

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights, such as weight decay, from the next step on."""
        self._penalty.assign(factor)

    def count_finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""
        return self._finite.take_count()

    def collect_epoch_measures(self) -> dict[str, float]:
        """Columns of ``history.csv`` that were measured in the epoch; none of a parameter server's workers."""
        if self._replica:
            return {}
        input_measures = self._input_measures.end_epoch(self._steps) if self._input_measures else {}
        return self._measures.end_epoch(self._steps) | input_measures

    def summarize_step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.summarize_step_times`."""
        return self._measures.summarize_step_times()

    def count_steps_made(self) -> int:
        """The number of steps, one per batch, since training began, including those before a restart."""
        return int(self.model.optimizer.iterations.numpy())

    def has_averaged_gradients(self) -> bool | None:
        """True if the gradients of all weights went through the average when the training step was traced."""
        return self._averaging.has_averaged(self.model.optimizer, self.model.trainable_variables)

    def sends_sparse_gradients(self) -> bool:
        """True if sparse gradients are sent without making them dense."""
        return self._replica.has_sparse_gradients() if self._replica else self._averaging.sends_sparse
