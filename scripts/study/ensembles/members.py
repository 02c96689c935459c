"""A member of an ensemble: it trains as the only rank of a run of its own, on a stream that all members share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from study import backends
from study.backends.base import Trainer
from study.communication.alone import Alone
from study.communication.collectives import Collectives, Members, SharingCollectives
from study.core import cores
from study.data.samples import SampleSource
from study.ensembles import consumption, results, votes
from study.ensembles.content import Form
from study.ensembles.order import Order
from study.ensembles.sharing import WAYS, Place
from study.ensembles.stream import Errors, Stream
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import Member, members_of, preprocessing_ranks
from study.instruments import counters
from study.training import checkpoints
from study.training.history import History
from study.training.job import Job
from study.workloads.base import Data, Workload


class MemberJob(Job):
    """The training of one member."""

    def __init__(
        self,
        member: Member,
        run: RunDefinition,
        workload: Workload,
        communicator: Collectives,
        stream: Stream,
        ranks: Path,
        rank: int,
        resumed: int,
        ballot: votes.Ballot | None,
    ) -> None:
        """run, workload, communicator: of the member alone. stream: of its training samples.

        ranks: the folder of the ranks' files. rank: of this process, among all. resumed: the most epochs that an
        earlier attempt has trained, of any member. ballot: for the member's predictions, if there is a vote.
        """
        super().__init__(run, workload, communicator)
        self._member, self._stream, self._resumed = member, stream, resumed
        self._ranks, self._rank, self._ballot = ranks, rank, ballot
        self._trainer: Trainer
        self._no_vote: str | None = None
        self._rates: dict[str, float | None] = {}

    def checkpoints(self, folder: str | Path) -> Path:
        """The folder of the member's checkpoints."""
        return checkpoints.folder_of(folder, self._member.number)

    def steps(self, trainer: Trainer) -> Callable[[], int]:
        """The number of batches taken."""
        return lambda: self._stream.batches_taken

    def train(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train, or only take batches."""
        self._trainer, trained = trainer, self._trained(trainer, fit)
        self._stream.usage.write(self._ranks / f"usage-{self._rank:05d}.csv", self._rank)
        return trained

    def _trained(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        with self._stream.flowing():
            if not consumption.trains(self.run):
                taken = consumption.take(trainer, self._stream, self.run)
                self._rates = taken.rates
                return taken.history
            return fit()

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Nothing for a member that has trained nothing; one that votes also leaves its ballot."""
        if not consumption.trains(self.run):
            return {}
        found = evaluate()
        if self._ballot:
            self._no_vote = self._ballot.cast(self._trainer)
        return found

    def results(self, history: History, test_metrics: Mapping[str, float], initial_checksum: int) -> dict[str, Any]:
        """What `study.ensembles.results` reads of a member."""
        member = results.of_rank(self._described(), history, test_metrics)
        return {"initial_weights_crc32": initial_checksum, "member": member}

    def resumed_after(self, epochs: int) -> int:
        """The most that any member had trained."""
        return self._resumed

    def _described(self) -> dict[str, Any]:
        """What it is, and what its stream has measured."""
        return {
            "number": self._member.number,
            "parameters": self._trainer.parameters,
            "seed": self._member.seed,
            "learning_rate": self.run.learning_rate,
            "batch_size": self.run.derived.batch_size_per_rank,
            "steps_per_epoch": -(-len(self._stream) // self.run.derived.batch_size_per_rank),
            "no_vote": self._no_vote,
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
    return {
        "process_cpu_s": counters.read_process_cpu_s(),
        "other_cores_cpu_s": counters.sum_other_cores_cpu_s(cores.limited),
    }


def enter(
    run: RunDefinition, folder: str | Path, communicator: Collectives, workload: Workload, data: Data
) -> MemberJob:
    """Make this rank its member, and ``data.train`` the stream that all share; all ranks must call.

    folder: the run's directory. The stream begins with the first epoch that a member has not trained yet.
    """
    backend, number = backends.of_run(run), communicator.rank
    read, member = dataclasses.replace(data), members_of(run.parameters)[number]
    own, ranks = alone(run, member), Path(folder) / "ranks"
    resumed = communicator.gather(_epochs_trained(own, checkpoints.folder_of(folder, number)))
    shared = stream(
        run, cast(SharingCollectives, communicator), data.train, lambda: backend.reading_errors(read.train), resumed
    )
    data.train = shared
    ballot = votes.ballot(run, ranks, number, data.test)
    own_rank = communicator if communicator.size == 1 else Alone(communicator)
    return MemberJob(member, own, backend.workload(own), own_rank, shared, ranks, number, max(resumed), ballot)


def _epochs_trained(run: RunDefinition, folder: Path) -> int:
    """The number of epochs after which a member goes on. run: of the member alone. folder: of its checkpoints."""
    found = checkpoints.latest(folder, checkpoints.labels(run)) if run["checkpoint_epochs"] else None
    return found[0] if found else 0


def process_sets(run: RunDefinition) -> list[Members]:
    """The process sets that the way of sharing needs, as Horovod takes them: not those of one rank or of all."""
    sets = WAYS[run["input_sharing"]].process_sets(run.ranks, preprocessing_ranks(run.parameters))
    return [members for members in dict.fromkeys(sets) if 1 < len(members) < run.ranks]


def alone(run: RunDefinition, member: Member) -> RunDefinition:
    """The run of one member by itself."""
    changed: dict[str, Any] = {"ensemble": 1, "gpus": 1}
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
    communicator: SharingCollectives,
    samples: SampleSource,
    reading_errors: Errors,
    resumed: list[int],
) -> Stream:
    """The stream of training samples of all members; all ranks must call.

    run: the whole ensemble's. samples: of an epoch. reading_errors: as of `Stream`. resumed: number of epochs after
    which each member goes on.
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
    backend = backends.of_run(run)
    form = Form.of(backend.block_form(samples, order))
    readers = preprocessing_ranks(run.parameters)
    way = WAYS[run["input_sharing"]](
        Place(communicator, backend, samples, readers, order, form, run["prefetch_blocks"])
    )
    passed_over = (resumed[communicator.rank] - first) * order.blocks_per_epoch
    return Stream(way, reading_errors, passed_over)
