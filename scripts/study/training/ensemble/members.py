"""A member of an ensemble: it trains as the only rank of a run of its own, on the stream that all members share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from study import models
from study.core import cores
from study.core.errors import StudyError
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import Member, halving_epochs, members_of, preprocessing_ranks
from study.instruments import cpu_time, heartbeats
from study.instruments.traffic import Traffic
from study.models.base import Benchmark, Data
from study.training import checkpoints, fit
from study.training.communicator import Broadcast, Communicator, Members
from study.training.ensemble import consumption
from study.training.ensemble.content import Form
from study.training.ensemble.halving import Halving
from study.training.ensemble.order import Order
from study.training.ensemble.sharing import WAYS, Place
from study.training.ensemble.stream import Errors, Stream
from study.training.job import Fitted, Job


class MemberJob(Job):
    """The training of one member."""

    def __init__(
        self,
        member: Member,
        run: RunDefinition,
        benchmark: Benchmark,
        communicator: Communicator,
        stream: Stream,
        halving: Halving,
        ranks: Path,
        resumed: int,
    ) -> None:
        """run, benchmark, communicator: of the member alone. stream: of its training samples.

        halving: of the ensemble. ranks: the folder of the ranks' files. resumed: the most epochs that an earlier
        attempt has trained, of any member.
        """
        super().__init__(run, benchmark, communicator)
        self._member, self._stream, self._halving, self._resumed = member, stream, halving, resumed
        self._ranks = ranks
        self._ended_after: int | None = None
        self._failure: str | None = None
        self._rates: dict[str, float | None] = {}

    def checkpoints(self, folder: str | Path) -> Path:
        """The folder of the member's checkpoints."""
        return checkpoints.folder_of(folder, self._member.number)

    def steps(self, model: Any) -> Callable[[], int]:
        """The number of batches taken."""
        return lambda: self._stream.batches_taken

    def goes_on(self, epoch: int, loss: float) -> bool:
        """Whether the member trains on after an epoch; its rank goes on sharing in any case."""
        if self._halving.goes_on(epoch, loss):
            return True
        self._ended_after = epoch
        print(f"member {self._member.number} stops after epoch {epoch}: it is in the worse half", flush=True)
        return False

    def train(self, model: Any, fit: Callable[[], Fitted]) -> Fitted:
        """Train, or only take batches. A member that fails ends the run, or goes on sharing for the others."""
        trained = self._trained(model, fit)
        number = self._member.number
        self._stream.usage.write(self._ranks / f"usage-{number:05d}.csv", number)
        return trained

    def _trained(self, model: Any, fit: Callable[[], Fitted]) -> Fitted:
        with self._stream.flowing():
            if not consumption.trains(self.run):
                taken = consumption.take(model, self._stream, self.run)
                self._rates = taken.rates
                return taken.history, [], None
            try:
                return fit()
            except StudyError as error:
                if self.run["on_member_failure"] == "end" or self._stream.has_failed:
                    raise
                self._failure = str(error)
                self._halving.fail()
                print(f"error: member {self._member.number}: {error}; the others go on", flush=True)
                return pd.DataFrame(), [], None

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Nothing for a member that has failed, or that has trained nothing."""
        return evaluate() if consumption.trains(self.run) and self._failure is None else {}

    @property
    def told(self) -> dict[str, Any]:
        """What it is, how it ended, and what its stream has measured."""
        return {
            "number": self._member.number,
            "seed": self._member.seed,
            "learning_rate": self.run.learning_rate,
            "batch_size": self.run.derived.batch_size_per_rank,
            "steps_per_epoch": -(-len(self._stream) // self.run.derived.batch_size_per_rank),
            "failure": self._failure,
            "ended_after_epoch": self._ended_after,
            "resumed_after": self._resumed,
            "affinity": cores.allowed(),
            **_of_core_limit(),
            **self._rates,
            **self._stream.measures(),
        }


def _of_core_limit() -> dict[str, float]:
    """CPU time of this process and of its children since it began, and the most of it that was on other cores.

    Empty without `core_limit`.
    """
    if cores.limited is None:
        return {}
    return {"process_cpu_s": cpu_time.of_process_s(), "other_cores_cpu_s": cpu_time.on_other_cores_s(cores.limited)}


def enter(
    run: RunDefinition, folder: str | Path, communicator: Communicator, benchmark: Benchmark, data: Data
) -> MemberJob:
    """Make this rank the member with its number, and ``data.train`` the stream of the ensemble; all ranks must call.

    folder: the run's directory. The stream begins with the first epoch that a member has not trained yet.
    """
    read, member = dataclasses.replace(data), members_of(run.parameters)[communicator.rank]
    own, ranks = alone(run, member), Path(folder) / "ranks"
    halving = _halving(run, Path(folder), member)
    trained = _epochs_trained(own, checkpoints.folder_of(folder, member.number))
    halving.begin()
    told = communicator.gather((trained, halving.has_stopped(trained)))
    # A member that has stopped needs no more samples: as if it had trained all epochs.
    resumed = [run.derived.epochs_per_rank if stopped else epochs for epochs, stopped in told]
    found = stream(run, communicator, data.train, lambda: benchmark.reading_errors(read), resumed)
    data.train = found
    model = models.get(own.benchmark["name"], own.benchmark)
    most = max(epochs for epochs, _ in told)
    return MemberJob(member, own, model, Alone(communicator), found, halving, ranks, most)


def _halving(run: RunDefinition, folder: Path, member: Member) -> Halving:
    """The halvings of a run, whose files are kept for a restart where its checkpoints are. folder: the run's."""
    ranks = folder / "ranks"
    kept = checkpoints.folder_of(folder) / f"halving-{run.fingerprint}"
    return Halving(
        kept if run["checkpoint_epochs"] else ranks / "halving",
        ranks,
        halving_epochs(run.parameters),
        run["ensemble"],
        member.number,
        heartbeats.limit_s() / 2 if run["on_member_failure"] == "continue" else None,
    )


def _epochs_trained(run: RunDefinition, folder: Path) -> int:
    """The number of epochs after which a member goes on. run: of the member alone. folder: of its checkpoints."""
    found = checkpoints.latest(folder, fit.labels(run)) if run["checkpoint_epochs"] else None
    return found[0] if found else 0


def process_sets(run: RunDefinition) -> list[Members]:
    """The process sets of an ensemble's way of sharing, as Horovod takes them: not those of one rank or of all."""
    ranks = run.ranks
    sets = WAYS[run["input_sharing"]].process_sets(ranks, preprocessing_ranks(run.parameters))
    return [members for members in dict.fromkeys(sets) if 1 < len(members) < ranks]


def alone(run: RunDefinition, member: Member) -> RunDefinition:
    """The run of one member by itself, on one rank."""
    changed: dict[str, Any] = {"gpus": 1}
    if member.learning_rate is not None:
        changed["base_learning_rate"] = member.learning_rate
    if member.simulated_samples_per_s is not None:
        changed["simulated_samples_per_s"] = member.simulated_samples_per_s
    derived = dataclasses.replace(
        run.derived,
        seed=run.derived.seed + member.seed,
        batch_size_per_rank=member.batch_size or run.derived.batch_size_per_rank,
    )
    benchmark = {**run.benchmark, "model": {**run.benchmark["model"], **member.model}}
    return dataclasses.replace(run, parameters={**run.parameters, **changed}, derived=derived, benchmark=benchmark)


def stream(
    run: RunDefinition,
    communicator: Communicator,
    samples: SampleSource,
    reading_errors: Errors,
    resumed: Sequence[int],
) -> Stream:
    """The stream of a member's training samples; all ranks must call.

    run: the whole ensemble's. samples: of an epoch. reading_errors: as of `Stream`. resumed: by member, the number of
    epochs after which it goes on.
    """
    block_samples, first = run["share_block_samples"] or run.derived.batch_size_per_rank, min(resumed)
    order = Order(
        run.derived.seed,
        len(samples),
        min(block_samples, len(samples)),
        run.derived.epochs_per_rank - first,
        run.benchmark["shuffle"],
        first_epoch=first,
    )
    order = consumption.limited(order, run)
    form = Form.of(order.dataset(samples, 0, 1))
    readers, waits = preprocessing_ranks(run.parameters), run["on_member_lag"] == "wait"
    way = WAYS[run["input_sharing"]](Place(communicator, samples, readers, order, form, run["prefetch_blocks"], waits))
    passed_over = (resumed[communicator.rank] - first) * order.blocks_per_epoch
    return Stream(way, reading_errors, run["on_member_failure"] == "continue", passed_over)


class Alone:
    """A `study.training.communicator.Communicator` of a member, which is the only rank of its run.

    Nothing that training does with it reaches another member.
    """

    strategy = None
    rank, size = 0, 1

    def __init__(self, every: Communicator) -> None:
        """every: the communicator of all ranks."""
        self.local_rank, self.local_size = every.local_rank, 1
        self.own_threads, self.libraries = every.own_threads, every.libraries

    def create_process_sets(self, sets: list[Members]) -> None:
        """Nothing: there is one rank."""

    def distributed_optimizer(
        self, optimizer: Any, members: Members | None = None, compression: str = "none", backward_passes: int = 1
    ) -> Any:
        """``optimizer`` as it is: there is nothing to average."""
        return optimizer

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any], list[Any]], None]) -> None:
        """Have each step of ``optimizer`` also do ``observe(gradients, gradients)``."""
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of Keras's LossScaleOptimizer
        compute = optimizer.compute_gradients

        def observed(*arguments: Any, **named: Any) -> Any:
            pairs = compute(*arguments, **named)
            gradients = [gradient for gradient, _ in pairs]
            observe(gradients, gradients)
            return pairs

        optimizer.compute_gradients = observed

    def broadcast_variables(self, variables: list[Any], members: Members | None = None) -> None:
        """Nothing: every member keeps its own."""

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Nothing: it is there."""

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """The member's own ``value``."""
        return [value]

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """The member's own."""
        return sent

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """The member's own."""
        return list(contents.values())

    def concurrent_broadcasts(self) -> Broadcast:
        """The member's own."""
        return self.broadcast_bytes

    def time_allreduce(self, size: int, repeats: int) -> list[float]:
        """Refused: there is no other rank."""
        raise StudyError("a member of an ensemble has no allreduce")

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic()

    def collect(self, mine: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(``mine``, no other processes)."""
        return [mine], []

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""
