"""A linear model with exact gradients, as a `study.backends.base.Backend`; no run of a study uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study import workloads
from study.backends.base import BlockOrder, Hooks, OwnSamples, State, count_rank_samples, count_rank_steps
from study.communication.collectives import Collectives, Members
from study.core.errors import StudyError
from study.data.order import EpochOrder
from study.data.samples import Can, SampleSource, select_part
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import scale_rate
from study.instruments.heartbeats import Heartbeat
from study.workloads.base import Data, Workload

Floats = NDArray[np.float64]


class Linear:
    """Outputs are inputs x weights. Its loss is the mean squared error, its optimizer is SGD with momentum.

    A penalty of ``penalty`` x the weights' squared norm is added to the loss of training.
    """

    makes_steps, runs_epochs, penalty = True, False, 0.01

    def __init__(self, run: RunDefinition, ranks: Collectives, data: Data) -> None:
        self._run, self._ranks, self._data = run, ranks, data
        self._size = run.derived.batch_size_per_rank
        self.steps_per_epoch = count_rank_steps(data, run)
        features, outputs = (int(np.prod(each.shape[1:])) for each in data.train.arrays())
        kernel = np.random.default_rng(run.derived.seed + ranks.rank).normal(0, 0.1, (features, outputs))
        self._state: State = {"kernel": kernel, "velocity": np.zeros_like(kernel), "step": np.asarray(0)}
        self.parameters = self.trainable_parameters = kernel.size
        self._rate = scale_rate(run, ranks.size * run.emulated_ranks)
        self._momentum, self._factor, self._finite = run.benchmark.get("momentum", 0.0), 1.0, 0

    def get_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays of `get_state`, by name."""
        return {name: each.shape for name, each in self._state.items()}

    def get_state(self) -> State:
        """Copies of weights, velocity, and the number of steps."""
        return {name: each.copy() for name, each in self._state.items()}

    def load_state(self, state: State) -> None:
        """Take the arrays of `get_state`."""
        self._state = {name: np.array(state[name]) for name in self._state}

    def get_weights(self) -> list[NDArray[Any]]:
        """The only weight, a matrix."""
        return [self._state["kernel"]]

    def get_trained_weights(self) -> list[NDArray[Any]]:
        """The weights, which are all trained."""
        return self.get_weights()

    def broadcast_state(self) -> None:
        """Take the first rank's state."""
        self.load_state(self._ranks.gather(self._state)[0])

    def begin_training(self, epochs: int) -> None:
        """Nothing: there is no graph to prepare."""

    def train_epoch(self, epoch: int, begin_step: Callable[[], None]) -> dict[str, float]:
        """Average the gradients of all ranks, emulated ones too, in each step."""
        emulated = self._run.emulated_ranks
        orders = [self._draw_order(self._ranks.rank + number, epoch) for number in range(emulated)]
        losses = []
        for first in range(0, len(orders[0]), self._size):
            begin_step()
            batch = slice(first, first + self._size)
            gradients_and_losses = [
                self._compute_gradient(*(array[order[batch]] for array in self._get_arrays(number)))
                for number, order in enumerate(orders)
            ]
            self._apply_gradient(np.mean(np.stack([gradient for gradient, _ in gradients_and_losses]), axis=0))
            losses.append(gradients_and_losses[0][1])
            self._finite += bool(np.isfinite(np.mean(losses)))
        return {"loss": float(np.mean(losses))}

    def _get_arrays(self, emulated: int) -> tuple[Floats, Floats]:
        """Inputs and outputs of an emulated rank, one row per sample."""
        train = self._data.train
        if self._run.emulated_ranks > 1 and self._run["sharding"] == "by_rank":
            train = select_part(train, emulated, self._run.emulated_ranks)
        x, y = (each.reshape(len(each), -1).astype(np.float64) for each in train.arrays())
        return x, y

    def _draw_order(self, rank: int, epoch: int) -> NDArray[np.int64]:
        """The order of a rank's samples in an epoch."""
        number = count_rank_samples(self._data, self._run)
        if not self._run.benchmark["shuffle"]:
            return np.arange(number)
        return EpochOrder(self._run.derived.seed + rank, epoch).positions(number)

    def _compute_gradient(self, x: Floats, y: Floats) -> tuple[Floats, float]:
        """(Gradient of the mean squared error with its penalty, loss)."""
        kernel, penalty = self._state["kernel"], self.penalty * self._factor
        error = x @ kernel - y
        gradient: Floats = np.multiply(2, x.T @ error / error.size + penalty * kernel)
        return gradient, float(np.mean(error**2) + penalty * np.sum(kernel**2))

    def _apply_gradient(self, gradient: Floats) -> None:
        """Average a gradient over the ranks, and change the weights by it."""
        average = np.mean(self._ranks.gather(gradient), axis=0)
        velocity = self._momentum * self._state["velocity"] - self._rate * average
        kernel, step = self._state["kernel"] + velocity, self._state["step"] + 1
        self._state = {"kernel": kernel, "velocity": velocity, "step": np.asarray(step)}

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """Refused: the loop runs the epochs."""
        raise TypeError("a linear model has no loop of its own")

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss with its penalty, and accuracy: the share of samples whose largest output is the right one."""
        x, y = (each.reshape(len(each), -1).astype(np.float64) for each in samples.arrays())
        right = (x @ self._state["kernel"]).argmax(axis=1) == y.argmax(axis=1)
        return {"loss": self._compute_gradient(x, y)[1], "accuracy": float(right.mean())}

    def make_batches(self, samples: SampleSource) -> Iterator[tuple[Any, ...]]:
        """Make batches of the samples in their order; of a stream, of its next epoch."""
        for first in range(0, len(samples), self._size):
            number = min(self._size, len(samples) - first)
            is_stream = Can.STREAMED in samples.can
            yield samples.take(number) if is_stream else samples.batch(np.arange(first, first + number))

    def predict(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """Predict ``samples``: (right outputs, outputs of the model), batch by batch."""
        x, y = samples.arrays()
        for first in range(0, len(x), self._size):
            batch = slice(first, first + self._size)
            yield y[batch], x[batch].reshape(len(x[batch]), -1) @ self._state["kernel"]

    def step(self, x: Any, y: Any) -> None:
        """Make one step on a batch."""
        self._apply_gradient(
            self._compute_gradient(*(np.asarray(each, np.float64).reshape(len(each), -1) for each in (x, y)))[0]
        )

    def get_learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._rate

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self._rate = rate

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalty on the weights, from the next step on."""
        self._factor = factor

    def count_finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""
        number, self._finite = self._finite, 0
        return number

    def collect_epoch_measures(self) -> dict[str, float]:
        """No columns: nothing is measured."""
        return {}

    def summarize_step_times(self) -> None:
        """None: step times are not measured."""

    def count_steps_made(self) -> int:
        """The number of steps, one per batch, since training began, including those before a restart."""
        return int(self._state["step"])

    def has_averaged_gradients(self) -> bool | None:
        """True; None for a single rank."""
        return True if self._ranks.size > 1 else None

    def sends_sparse_gradients(self) -> bool:
        """False: all gradients are dense."""
        return False


class Fake(OwnSamples):
    """The framework of `Linear`."""

    name = "fake"

    def load_workload(self, run: RunDefinition) -> Workload:
        """Load the run's workload; any will do."""
        return workloads.load_workload(run.benchmark["name"], run.benchmark)

    def limit_threads(self, compute: int, operations: int = 1) -> None:
        """Nothing: NumPy's threads are those of the process."""

    def serve_or_stand_by(
        self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None
    ) -> bool:
        """False: each process is a rank."""
        return False

    def connect(self, run: RunDefinition, static_sets: Sequence[Members] = ()) -> Collectives:
        """Refused: a test gives its own ranks."""
        raise StudyError("framework: fake has no ranks of its own")

    def pin_device(self, run: RunDefinition, local_rank: int) -> None:
        """Nothing: there is no GPU."""

    def make_blocks(
        self, samples: SampleSource, order: BlockOrder, reader: int, readers: int
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Make each block when it is asked for, on the thread that asks."""
        chosen = []
        for epoch in range(order.first_epoch, order.first_epoch + order.epochs):
            positions = order.positions(epoch)
            starts = range(0, len(positions), order.block_samples)
            of_epoch = [(positions[start : start + order.block_samples], epoch) for start in starts]
            chosen += of_epoch[reader::readers]
        for positions, epoch in chosen[: order.own_blocks(reader, readers)]:
            yield samples.batch(positions, samples.changes(positions, epoch))

    def describe_blocks(self, samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """(Type, shape of one sample) of each array of a block."""
        return [(each.dtype, each.shape[1:]) for each in samples.batch(np.empty(0, np.int64))]

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Linear:
        """Build a linear model, for any workload whose samples are in memory."""
        return Linear(run, ranks, data)


BACKEND = Fake()
