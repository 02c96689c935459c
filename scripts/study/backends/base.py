"""What a framework must be able to do: the protocol of a backend, and of the trainer that it builds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from study.communication.collectives import Collectives, Members
from study.communication.roles import strategy_of
from study.core.errors import StudyError
from study.data.samples import SampleSource, samples_per_rank
from study.experiment.definition import RunDefinition
from study.instruments.gpus import choose_gpu
from study.instruments.heartbeats import Heartbeat
from study.instruments.operations import Profile
from study.machines.run_layout import PARAMETER_SERVER
from study.workloads.base import Data, Workload

State = dict[str, NDArray[Any]]  # by name, in one order on all ranks


class BlockOrder(Protocol):
    """An order of samples that is cut into blocks; see `study.ensembles.order.Order`."""

    @property
    def block_samples(self) -> int:
        """Samples of a block; the last one of an epoch may be smaller."""

    @property
    def epochs(self) -> int:
        """How often all samples are read."""

    @property
    def first_epoch(self) -> int:
        """Number of the first epoch that is read, from 0."""

    def positions(self, epoch: int) -> NDArray[np.int64]:
        """Those of all samples in the order of an epoch."""

    def own_blocks(self, reader: int, readers: int) -> int:
        """The number of blocks that a reader makes."""


class Hooks(Protocol):
    """What the training loop does around steps, for a trainer that runs the epochs itself."""

    acts_before_steps: bool  # whether `before_step` does anything

    def begin_epoch(self, epoch: int) -> None:
        """Before the first step of an epoch. epoch: from 0."""

    def before_step(self) -> None:
        """Before each step."""

    def end_steps(self) -> None:
        """After the last step of an epoch, before validation."""

    def end_epoch(self, epoch: int, logs: Mapping[str, float], validation: Mapping[str, float] | None) -> None:
        """After an epoch.

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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of `state`."""

    def state(self) -> State:
        """All that training continues from: weights, other variables of the model, and the optimizer's."""

    def load(self, state: State) -> None:
        """Put a `state` into the model and its optimizer."""

    def weights(self) -> Iterable[NDArray[Any]]:
        """All variables of the model, also those that are not trained."""

    def trained_weights(self) -> Iterable[NDArray[Any]]:
        """The weights that the optimizer changes."""

    def broadcast_state(self) -> None:
        """* Give all ranks the state of the first one."""

    def begin(self, epochs: int) -> None:
        """Prepare the training step. epochs: already trained.

        Raises:
            StudyError: the model cannot be trained as the run promises.
        """

    def train_epoch(self, epoch: int, before_step: Callable[[], None]) -> dict[str, float]:
        """* Make the steps of an epoch, from 0; returns the mean loss and the metrics."""

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """* Run the epochs from number ``first`` on until ``epochs`` are trained, with the framework's own loop."""

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``."""

    def batches(self, samples: SampleSource) -> Iterable[tuple[Any, ...]]:
        """Batches (x, y) as `step` takes them; each iteration over a stream gives its next epoch."""

    def predictions(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """(outputs that are right, outputs of the model), batch by batch."""

    def step(self, x: Any, y: Any) -> None:
        """* Make one step on a batch."""

    def learning_rate(self) -> float:
        """The optimizer's learning rate."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""

    def set_momentum(self, momentum: float) -> None:
        """Set the momentum of the next steps."""

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights, such as weight decay, from the next step on."""

    def finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""

    def measured(self) -> dict[str, float]:
        """Columns of ``history.csv`` that the steps of the epoch have measured."""

    def step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's: median, 95th percentile, jitter; None if not measured."""

    def operations(self) -> Profile | None:
        """The operations of some steps, after training; None if the run does not profile them.

        Raises:
            StudyError: the profiler saw no whole step.
        """

    def steps_made(self) -> int:
        """The number of steps since training began, also before a restart."""

    def gradients_averaged(self) -> bool | None:
        """Whether the gradients of all weights were averaged over the ranks; None if it is not known."""

    def sparse_gradients(self) -> bool:
        """Whether it sends sparse gradients, as of embeddings, as they are."""


class Backend(Protocol):
    """A framework."""

    name: str  # value of the grid key ``framework``

    def workload(self, run: RunDefinition) -> Workload:
        """The run's workload, as `build` takes it.

        Raises:
            StudyError: it has no model for this framework.
        """

    def limit_threads(self, compute: int, operations: int = 1) -> None:
        """Limit the threads of one operation, and the operations at once. Call before the framework is used."""

    def serve(self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None) -> bool:
        """Whether this process was no rank; then it has done its work, and it ends.

        Arguments: as of `study.training.rank.run_rank`.
        """

    def connect(
        self, run: RunDefinition, with_process_sets: bool = False, static_sets: Sequence[Members] = ()
    ) -> Collectives:
        """Wait for the other ranks.

        with_process_sets: whether process sets will be made later. static_sets: process sets that are there from the
        start, which takes less time; each of several ranks, not all.
        """

    def pin_device(self, run: RunDefinition, local_rank: int) -> str | None:
        """Give the rank its GPU, if the machine has GPUs; returns the GPU's UUID, None if it is not known."""

    def own_files(self, run: RunDefinition) -> Collection[str] | None:
        """The files whose samples this process reads itself; None for all."""

    def open_elsewhere(self, ranks: Collectives) -> None:
        """Have other processes open the files that they read."""

    def source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """The samples of training as this process hands them on. Call after `open_elsewhere`."""

    def reading_errors(self, *sources: SampleSource) -> AbstractContextManager[None]:
        """A block in which an error of reading these sources is raised as what it is."""

    def blocks(
        self, samples: SampleSource, order: BlockOrder, reader: int, readers: int
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """The preprocessed blocks (x, y) of one reader, in their order.

        Made ahead, on threads of their own, so that a training step does not keep them waiting.
        """

    def block_form(self, samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type, and shape of one sample, of each array of a block."""

    def takes_all_samples(self, ranks: Collectives) -> bool:
        """Whether the trainer divides the samples among the ranks itself."""

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Trainer:
        """The trainer of this rank.

        ranks: whose gradients are averaged. The initial weights depend on repeat and rank: ranks differ until the
        broadcast.
        """


def gpu_of_rank(framework: str, number: int, local_rank: int) -> int:
    """Which of the GPUs that a framework sees is a rank's.

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


def rank_samples(data: Data, run: RunDefinition) -> int:
    """The number of samples on which a rank trains in an epoch. data: its own, or those of all emulated ranks."""
    ranks = run.ranks if strategy_of(run) == PARAMETER_SERVER else run.emulated_ranks
    is_shared = ranks > 1 and run["sharding"] == "by_rank"
    return samples_per_rank(len(data.train), ranks) if is_shared else len(data.train)


def rank_steps(data: Data, run: RunDefinition) -> int:
    """The number of steps of a rank in an epoch; the last one may have fewer samples. data: as of `rank_samples`."""
    return -(-rank_samples(data, run) // run.derived.batch_size_per_rank)


def step_times(by_epoch: Sequence[NDArray[np.float64]]) -> dict[str, float] | None:
    """`Trainer.step_times` of the durations (s) of each epoch's steps; without the first epoch if there are others.

    ``median_s``, ``p95_s``: median and 95th percentile. ``jitter``: interquartile range / median. None if they are not
    measured, or if an epoch has one step.
    """
    later = by_epoch[1:] or by_epoch
    durations = np.concatenate(later) if later else np.empty(0)
    if not durations.any():  # no step was observed, or one per epoch
        return None
    quarter, median, three_quarters, most = np.quantile(durations, [0.25, 0.5, 0.75, 0.95])
    return {"median_s": median, "p95_s": most, "jitter": (three_quarters - quarter) / median}


class OwnSamples:
    """The part of a `Backend` whose every rank reads its own samples, in Python, and takes its part of them."""

    def own_files(self, run: RunDefinition) -> None:
        """All."""

    def open_elsewhere(self, ranks: Collectives) -> None:
        """Nothing: no other process reads."""

    def source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """The samples as they are."""
        return samples

    def reading_errors(self, *sources: SampleSource) -> AbstractContextManager[None]:
        """Errors of reading are raised as they are."""
        return nullcontext()

    def takes_all_samples(self, ranks: Collectives) -> bool:
        """Each rank takes its own."""
        return False


def is_finite(weights: Iterable[NDArray[Any]]) -> bool:
    """Whether all values of all arrays of floating-point numbers are finite."""
    return all(bool(np.isfinite(each).all()) for each in weights if np.issubdtype(each.dtype, np.inexact))
