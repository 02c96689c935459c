"""What a framework must be able to do: the protocol of a backend, and of the trainer that it builds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from study.communication.collectives import Collectives, Members
from study.communication.roles import get_strategy
from study.core.errors import StudyError
from study.data.samples import SampleSource, count_samples_per_rank
from study.experiment.definition import RunDefinition
from study.instruments.gpus import choose_gpu
from study.instruments.heartbeats import Heartbeat
from study.machines.run_layout import PARAMETER_SERVER
from study.workloads.base import Data, Workload

State = dict[str, NDArray[Any]]  # by name, in one order on all ranks


class BlockOrder(Protocol):
    """An order of samples that is cut into blocks; see `study.ensembles.order.Order`."""

    @property
    def block_samples(self) -> int:
        """Number of samples of a block; the last one of an epoch may be smaller."""

    @property
    def epochs(self) -> int:
        """Number of times that all samples are read."""

    @property
    def first_epoch(self) -> int:
        """Number of the first epoch that is read, from 0."""

    def positions(self, epoch: int) -> NDArray[np.int64]:
        """The positions of all samples in the order of an epoch."""

    def own_blocks(self, reader: int, readers: int) -> int:
        """The number of blocks that one of several readers makes."""


class Hooks(Protocol):
    """The training loop's part around steps, for a trainer that runs the epochs itself."""

    acts_on_steps: bool  # whether `begin_step` does anything

    def begin_epoch(self, epoch: int) -> None:
        """Called before the first step of an epoch. epoch: from 0."""

    def begin_step(self) -> None:
        """Called before each step."""

    def end_steps(self) -> None:
        """Called after the last step of an epoch, before validation."""

    def end_epoch(self, epoch: int, logs: Mapping[str, float], validation: Mapping[str, float] | None) -> None:
        """Called after an epoch and its validation.

        logs: loss and metrics of training. validation: the same of the validation set; None if it was not evaluated.
        """


class Trainer(Protocol):
    """A workload's model with its optimizer, on one rank.

    Methods marked with * are collective: all ranks must call them.
    """

    steps_per_epoch: int  # that are counted in an epoch: those of all workers, if one process counts for them
    makes_steps: bool  # whether this process makes steps; not one that only sends others to work
    runs_epochs: bool  # whether `fit` runs the epochs; else the loop calls `train_epoch`
    parameters: int  # values of all weights
    trainable_parameters: int

    def get_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays of `get_state`, by name."""

    def get_state(self) -> State:
        """All arrays from which training continues: weights, other variables of the model, and the optimizer's."""

    def load_state(self, state: State) -> None:
        """Put arrays of `get_state` into the model and its optimizer."""

    def get_weights(self) -> Iterable[NDArray[Any]]:
        """All variables of the model, including those that are not trained."""

    def get_trained_weights(self) -> Iterable[NDArray[Any]]:
        """The weights that the optimizer changes."""

    def broadcast_state(self) -> None:
        """* Give all ranks the state of the first one."""

    def begin_training(self, epochs: int) -> None:
        """Prepare the training step. epochs: number of those already trained.

        Raises:
            StudyError: the model cannot be trained as the run promises.
        """

    def train_epoch(self, epoch: int, begin_step: Callable[[], None]) -> dict[str, float]:
        """* Make the steps of an epoch, from 0; returns mean loss and metrics. begin_step: called before each step."""

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """* Run the epochs from number ``first`` on until ``epochs`` are trained, with the framework's own loop."""

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``."""

    def make_batches(self, samples: SampleSource) -> Iterable[tuple[Any, ...]]:
        """Make batches (x, y) for `step`; each iteration over a stream gives its next epoch."""

    def predict(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """Predict ``samples``: (right outputs, outputs of the model), batch by batch."""

    def step(self, x: Any, y: Any) -> None:
        """* Make one step on a batch."""

    def get_learning_rate(self) -> float:
        """The optimizer's learning rate."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights, such as weight decay, from the next step on."""

    def count_finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""

    def collect_epoch_measures(self) -> dict[str, float]:
        """Columns of ``history.csv`` that were measured in the steps of the epoch; the next epoch starts from zero."""

    def summarize_step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's: median, 95th percentile, jitter; None if not measured."""

    def count_steps_made(self) -> int:
        """The number of steps, one per batch, since training began, including those before a restart."""

    def has_averaged_gradients(self) -> bool | None:
        """True if the gradients of all weights were averaged over the ranks; None if it is not known."""

    def sends_sparse_gradients(self) -> bool:
        """True if sparse gradients, as of embeddings, are sent without making them dense."""


class Backend(Protocol):
    """A framework, as training uses it."""

    name: str  # value of the grid key ``framework``

    def load_workload(self, run: RunDefinition) -> Workload:
        """Load the run's workload with its model, for `build`.

        Raises:
            StudyError: it has no model for this framework.
        """

    def limit_threads(self, compute: int, operations: int = 1) -> None:
        """Limit the threads of one operation, and the operations at once. Call before the framework is used."""

    def serve_or_stand_by(
        self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None
    ) -> bool:
        """False for a process that trains; True for any other, once it has served the run or if it is not needed.

        A process that a batch system's launcher started may find out only here which it is. Arguments: as of
        `study.training.rank.run_rank`.
        """

    def connect(self, run: RunDefinition, static_sets: Sequence[Members] = ()) -> Collectives:
        """Wait for the other ranks.

        static_sets: process sets that are there from the start; each of several ranks, not all.
        """

    def pin_device(self, run: RunDefinition, local_rank: int) -> str | None:
        """Give the rank its GPU, if the machine has GPUs; returns the GPU's UUID, None if it is not known."""

    def list_own_files(self, run: RunDefinition) -> Collection[str] | None:
        """The names of the files whose samples this process reads itself; None for all."""

    def open_on_workers(self, ranks: Collectives) -> None:
        """Have a parameter server's workers open the files that they read."""

    def make_training_source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """Make the source of training samples that this process hands on. Call after `open_on_workers`."""

    def report_read_errors(self, *sources: SampleSource) -> AbstractContextManager[None]:
        """Raise an error of reading these sources, within the block, with its true cause."""

    def make_blocks(
        self, samples: SampleSource, order: BlockOrder, reader: int, readers: int
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Make the preprocessed blocks (x, y) of one reader, in their order.

        They are made ahead, on threads of their own, so that a training step does not keep them waiting.
        """

    def describe_blocks(self, samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """(Type, shape of one sample) of each array of a block."""

    def divides_samples(self, ranks: Collectives) -> bool:
        """True if the trainer divides the samples among the ranks itself."""

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Trainer:
        """Build the trainer of this rank.

        ranks: whose gradients are averaged. The initial weights depend on repeat and rank: ranks differ until the
        broadcast.
        """


def choose_gpu_index(framework: str, number: int, local_rank: int) -> int:
    """The index of a rank's GPU among the ``number`` that its framework sees.

    A launcher such as jsrun may show each rank only its own GPU.

    Raises:
        StudyError: there is none for this rank.
    """
    if not number:
        raise StudyError(f"the machine's file gives each rank a GPU (gpus_per_rank: 1) but {framework} sees none here")
    place = choose_gpu(local_rank, number)
    if place is None:
        raise StudyError(
            f"{framework} sees {number} GPUs here, and this is the node's rank {local_rank}, from 0; correct "
            "ranks_per_node in the machine's file, or what its jobs ask for"
        )
    return place


def count_rank_samples(data: Data, run: RunDefinition) -> int:
    """The number of samples on which a rank trains in an epoch. data: its own, or that of all emulated ranks."""
    ranks = run.ranks if get_strategy(run) == PARAMETER_SERVER else run.emulated_ranks
    is_shared = ranks > 1 and run["sharding"] == "by_rank"
    return count_samples_per_rank(len(data.train), ranks) if is_shared else len(data.train)


def count_rank_steps(data: Data, run: RunDefinition) -> int:
    """The number of steps of a rank in an epoch; the last may have fewer samples. data: as of `count_rank_samples`."""
    return -(-count_rank_samples(data, run) // run.derived.batch_size_per_rank)


def summarize_step_times(by_epoch: Sequence[NDArray[np.float64]]) -> dict[str, float] | None:
    """`Trainer.step_times` of the durations (s) of each epoch's steps; without the first epoch if there are others.

    ``median_s``, ``p95_s``: median and 95th percentile. ``jitter``: interquartile range / median. None if they are not
    measured, or if an epoch has one step.
    """
    later = by_epoch[1:] or by_epoch
    durations = np.concatenate(later) if later else np.empty(0)
    if not durations.any():  # no step was observed, or one per epoch
        return None
    quarter, median, three_quarters, percentile_95 = np.quantile(durations, [0.25, 0.5, 0.75, 0.95])
    return {"median_s": median, "p95_s": percentile_95, "jitter": (three_quarters - quarter) / median}


class OwnSamples:
    """Methods of a `Backend` whose ranks all read their own samples, in Python, and take their part of them."""

    def list_own_files(self, run: RunDefinition) -> None:
        """None: this process reads all files."""

    def open_on_workers(self, ranks: Collectives) -> None:
        """Nothing: no other process reads."""

    def make_training_source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """The samples, unchanged."""
        return samples

    def report_read_errors(self, *sources: SampleSource) -> AbstractContextManager[None]:
        """Do nothing: errors of reading are raised with their true cause anyway."""
        return nullcontext()

    def divides_samples(self, ranks: Collectives) -> bool:
        """False: each rank takes its part of the samples."""
        return False


def is_finite(weights: Iterable[NDArray[Any]]) -> bool:
    """True if all floating-point values of all arrays are finite."""
    return all(bool(np.isfinite(each).all()) for each in weights if np.issubdtype(each.dtype, np.inexact))
