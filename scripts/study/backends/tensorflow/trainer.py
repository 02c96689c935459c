"""A workload's Keras model with its optimizer, as a `study.backends.base.Trainer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import Hooks, State, rank_steps
from study.backends.tensorflow import keras_fit, layer_settings, precision, steps
from study.backends.tensorflow.build import compile_model
from study.backends.tensorflow.finite_steps import FiniteSteps
from study.backends.tensorflow.gradient_averaging import averaging_of
from study.backends.tensorflow.input import batches
from study.backends.tensorflow.input_measures import InputMeasures
from study.backends.tensorflow.local_replica import LocalReplica
from study.backends.tensorflow.operations import HOROVOD_UNSEEN, TensorFlowProfiler
from study.backends.tensorflow.step_measures import StepMeasures
from study.communication.collectives import Collectives
from study.communication.roles import strategy_of
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import first_collapsed_epoch
from study.instruments.operations import Profile, Window
from study.machines.run_layout import PARAMETER_SERVER
from study.workloads.base import Benchmark, Data


class KerasTrainer:
    """The model of one rank; under a parameter server, the model of all workers."""

    def __init__(self, workload: Benchmark, run: RunDefinition, ranks: Collectives, data: Data) -> None:
        self._run, self._ranks, self._data = run, ranks, data
        self._averaging = averaging_of(ranks)
        strategy = self._averaging.strategy
        self._replica = LocalReplica(workload, run, data.train.shape) if strategy else None
        with strategy.scope() if strategy else contextlib.nullcontext():
            self.model = compile_model(workload, run, ranks, data.train.shape)
        self.parameters = self.model.count_params()
        self.trainable_parameters = sum(int(np.prod(each.shape)) for each in self.model.trainable_variables)
        self.makes_steps = strategy_of(run) != PARAMETER_SERVER  # whose workers make them
        self.runs_epochs = bool(strategy) or run.parameters.get("training_loop", "keras") == "keras"
        self._steps = rank_steps(data, run)
        self.steps_per_epoch = self._steps if self.makes_steps else self._steps * run.ranks
        self._measures = StepMeasures(run, self._steps)
        self._input_measures: InputMeasures | None = None
        self._penalty: Any = None
        self._evaluated: dict[int, Any] = {}  # batches by sample source, which may be evaluated after every epoch
        self._inputs: steps.Inputs
        self._finite: FiniteSteps
        self._step: Any = None
        self._window: Window | None = None
        if run.profiles_operations:
            profiler = TensorFlowProfiler(HOROVOD_UNSEEN if ranks.size > 1 else "")
            self._window = Window(profiler, self._steps, run.derived.epochs_per_rank)

    def _variables(self) -> dict[str, Any]:
        """The variables of `state`. Keras gives names that repeat, so each has its number."""
        every = [*self.model.variables, *self.model.optimizer.variables]
        return {f"{number:04d} {each.name}": each for number, each in enumerate(every)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of `state`."""
        return {name: tuple(each.shape) for name, each in self._variables().items()}

    def state(self) -> State:
        """The variables of the model and of its optimizer."""
        return {name: each.numpy() for name, each in self._variables().items()}

    def load(self, state: State) -> None:
        """Assign a `state`."""
        for name, variable in self._variables().items():
            variable.assign(state[name])

    def weights(self) -> Iterator[NDArray[Any]]:
        """All variables of the model, one copy at a time."""
        return (each.numpy() for each in self.model.variables)

    def trained_weights(self) -> Iterator[NDArray[Any]]:
        """The same without moving statistics of batch normalisation, which differ between ranks, as their data."""
        return (each.numpy() for each in self.model.trainable_variables)

    def broadcast_state(self) -> None:
        """Give all ranks the first one's state; under a strategy, the local replica's weights."""
        if self._replica:
            self._replica.attach(self.model)
        self._averaging.broadcast_variables(list(self._variables().values()))

    def begin(self, epochs: int) -> None:
        """Check the model, wrap what is measured around its training step, and make its input."""
        streamed = self._data.train.is_streamed and self._run.emulated_ranks == 1 and not self._replica
        self._input_measures = InputMeasures() if streamed else None
        if self._replica:
            self._inputs = steps.of_servers(self.model, self._data, self._run, self._ranks)
        else:
            self._inputs = steps.prepared(
                self.model, self._data, self._run, self._ranks, self._measures, epochs, self._input_measures
            )
        self._finite = FiniteSteps(self.model)
        if first_collapsed_epoch(self._run) is not None:
            self._penalty = layer_settings.penalty_factor(self.model)

    def train_epoch(self, epoch: int, before_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch, without what Keras does around each."""
        import tensorflow as tf

        if self._step is None:
            self._step = tf.function(lambda data: self.model.train_step(data), reduce_retracing=True)
        self._inputs.set_epoch(epoch)
        self.model.reset_metrics()
        found: dict[str, Any] = {}
        batches = self._inputs.fit["x"]
        if self._window:
            self._window.begin_epoch(epoch)
            batches = self._window.measure_steps(batches)
        for batch in batches:
            before_step()
            found = self._step(batch)
        return {name: float(value) for name, value in found.items()}

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """Run the epochs with Keras's ``fit``."""
        callback = keras_fit.callback(hooks, self._inputs, not self._replica, self._window)
        self.model.fit(**self._inputs.fit, verbose=0, initial_epoch=first, epochs=epochs, callbacks=[callback])

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``; under a strategy, of the local replica with the model's weights."""
        if self._replica:
            return self._replica.evaluate(samples)
        if id(samples) not in self._evaluated:
            self._evaluated[id(samples)] = batches(samples, self._run.derived.batch_size_per_rank)
        return self.model.evaluate(self._evaluated[id(samples)], verbose=0, return_dict=True)

    def batches(self, samples: SampleSource) -> Any:
        """A ``tf.data.Dataset``; each iteration over a stream gives its next epoch."""
        return batches(samples, self._run.derived.batch_size_per_rank)

    def predictions(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """(outputs that are right, outputs of the model), batch by batch."""
        for x, y, *_ in batches(samples, self._run.derived.batch_size_per_rank):
            yield np.asarray(y), self.model.predict_on_batch(x)

    def step(self, x: Any, y: Any) -> None:
        """Make one step with Keras's ``train_on_batch``."""
        self.model.train_on_batch(x, y)

    def learning_rate(self) -> float:
        """The optimizer's learning rate."""
        import tf_keras as keras

        return float(keras.backend.get_value(self.model.optimizer.learning_rate))

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.model.optimizer.learning_rate.assign(rate)

    def set_momentum(self, momentum: float) -> None:
        """Set the momentum of the next steps, of an optimizer that `compile_model` has given a variable for it."""
        precision.without_loss_scale(self.model.optimizer).momentum.assign(momentum)

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights."""
        self._penalty.assign(factor)

    def finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""
        return self._finite.taken()

    def measured(self) -> dict[str, float]:
        """Columns of ``history.csv``; the steps of a parameter server's workers are not measured."""
        if self._replica:
            return {}
        of_input = self._input_measures.end_epoch(self._steps) if self._input_measures else {}
        return self._measures.end_epoch(self._steps) | of_input

    def step_times(self) -> dict[str, float] | None:
        """As `StepMeasures.step_times`."""
        return self._measures.step_times()

    def operations(self) -> Profile | None:
        """As they were profiled."""
        return self._window.profile() if self._window else None

    def steps_made(self) -> int:
        """The optimizer's count."""
        return int(self.model.optimizer.iterations.numpy())

    def gradients_averaged(self) -> bool | None:
        """Whether the gradients of all weights went through the average when the training step was traced."""
        return self._averaging.has_averaged(self.model.optimizer, self.model.trainable_variables)

    def sparse_gradients(self) -> bool:
        """Whether it sends sparse gradients as they are."""
        return self._replica.has_sparse_gradients() if self._replica else self._averaging.sends_sparse
