"""A member of an ensemble: its ranks train as those of a run of their own, on streams that all members share.

The ranks of an ensemble stand in a table: a row per member, and a column of the ranks with the same number in their
members. The ranks of a row average their gradients, and those of a column share a stream of samples. Members may have
different numbers of ranks; then a column lacks those that have no such rank.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from study import backends
from study.backends.base import Trainer
from study.communication.collectives import Collectives, Members
from study.communication.subset import subset
from study.core import cores
from study.core.errors import StudyError
from study.data.samples import SampleSource
from study.ensembles import consumption, results, votes
from study.ensembles.content import Form
from study.ensembles.halving import Halving
from study.ensembles.order import Order
from study.ensembles.sharing import WAYS, Place
from study.ensembles.stream import Errors, Stream
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import Member, halving_epochs, members_of, preprocessing_ranks, ranks_of
from study.instruments import cpu_time, heartbeats
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
        halving: Halving,
        ranks: Path,
        rank: int,
        resumed: int,
        ballot: votes.Ballot | None,
    ) -> None:
        """run, workload, communicator: of the member alone. stream: of the training samples of this rank.

        halving: of the ensemble. ranks: the folder of the ranks' files. rank: of this process, among all. resumed: the
        most epochs that an earlier attempt has trained, of any member. ballot: for the member's predictions, on its
        first rank if there is a vote.
        """
        super().__init__(run, workload, communicator)
        self._member, self._stream, self._halving, self._resumed = member, stream, halving, resumed
        self._ranks, self._rank, self._ballot = ranks, rank, ballot
        self._trainer: Trainer
        self._no_vote: str | None = None
        self._ended_after: int | None = None
        self._failure: str | None = None
        self._rates: dict[str, float | None] = {}

    def checkpoints(self, folder: str | Path) -> Path:
        """The folder of the member's checkpoints."""
        return checkpoints.folder_of(folder, self._member.number)

    def steps(self, trainer: Trainer) -> Callable[[], int]:
        """The number of batches taken."""
        return lambda: self._stream.batches_taken

    def goes_on(self, epoch: int, loss: float) -> bool:
        """Whether the member trains on after an epoch; its ranks go on sharing in any case. Its first one decides."""
        is_first = self.communicator.rank == 0
        if self.communicator.gather(is_first and self._halving.goes_on(epoch, loss))[0]:
            return True
        self._ended_after = epoch
        if is_first:
            print(f"member {self._member.number} stops after epoch {epoch}: it is in the worse half", flush=True)
        return False

    def train(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train, or only take batches. A member that fails ends the run, or goes on sharing for the others."""
        self._trainer, trained = trainer, self._trained(trainer, fit)
        self._stream.usage.write(self._ranks / f"usage-{self._rank:05d}.csv", self._rank)
        return trained

    def _trained(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        with self._stream.flowing():
            if not consumption.trains(self.run):
                taken = consumption.take(trainer, self._stream, self.run)
                self._rates = taken.rates
                return taken.history
            try:
                return fit()
            except StudyError as error:
                if self.run["on_member_failure"] == "end" or self._stream.has_failed:
                    raise
                self._failure = str(error)
                self._halving.fail()
                print(f"error: member {self._member.number}: {error}; the others continue", flush=True)
                return []

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Nothing for a member that has failed, or that has trained nothing; one that votes also leaves its ballot."""
        if not consumption.trains(self.run) or self._failure is not None:
            return {}
        found = evaluate()
        if self._ballot and self._ended_after is None:
            self._no_vote = self._ballot.cast(self._trainer)
        return found

    def results(self, history: History, test_metrics: Mapping[str, float], initial_checksum: int) -> dict[str, Any]:
        """What `study.ensembles.results` reads of a member."""
        member = results.of_rank(self._described(), history, test_metrics)
        return {"initial_weights_crc32": initial_checksum, "member": member}

    def writing_rank(self, everyone: Sequence[Mapping[str, Any]]) -> int:
        """The first rank whose member has trained all epochs."""
        return results.first_to_the_end(everyone)

    def leave(self, ranks: Path, rank: int, content: Mapping[str, Any], history: History) -> None:
        """Leave its results, from which the launching process makes the run's files."""
        results.leave(ranks, rank, content, history)

    def resumed_after(self, epochs: int) -> int:
        """The most that any member had trained."""
        return self._resumed

    def _described(self) -> dict[str, Any]:
        """What it is, how it ended, and what its stream has measured."""
        return {
            "number": self._member.number,
            "benchmark": self.run.benchmark["name"],
            "parameters": self._trainer.parameters,
            "seed": self._member.seed,
            "learning_rate": self.run.learning_rate,
            "batch_size": self.run.derived.batch_size_per_rank,
            "steps_per_epoch": -(-len(self._stream) // self.run.derived.batch_size_per_rank),
            "failure": self._failure,
            "ended_after_epoch": self._ended_after,
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
    return {"process_cpu_s": cpu_time.of_process_s(), "other_cores_cpu_s": cpu_time.on_other_cores_s(cores.limited)}


def enter(
    run: RunDefinition, folder: str | Path, communicator: Collectives, workload: Workload, data: Data
) -> MemberJob:
    """Make this rank one of its member, and ``data.train`` the stream of its column; all ranks must call.

    folder: the run's directory. data: ``train`` has the samples of this column. The stream begins with the first epoch
    that a member has not trained yet.
    """
    backend, rows = backends.of_run(run), _rows(run)
    number, column = _place(rows, communicator.rank)
    together, sharing = subset(communicator, rows[number]), subset(communicator, column)
    read, member = dataclasses.replace(data), members_of(run.parameters)[number]
    own, ranks = alone(run, member), Path(folder) / "ranks"
    halving = _halving(run, Path(folder), member)
    trained = _epochs_trained(own, checkpoints.folder_of(folder, member.number))
    halving.begin()
    told = communicator.gather((trained, halving.has_stopped(trained)))
    # A member that has stopped needs no more samples: as if it had trained all epochs.
    of_column = [told[row[0]] for row in rows if together.rank < len(row)]
    resumed = [run.derived.epochs_per_rank if stopped else epochs for epochs, stopped in of_column]
    seed = run.derived.seed + together.rank  # as the rank with this number of a single job
    found = stream(run, sharing, data.train, seed, lambda: backend.reading_errors(read.train), resumed)
    data.train = found
    model = backend.workload(own)
    most = max(epochs for epochs, _ in told)
    ballot = votes.ballot(run, ranks, number, data.test) if together.rank == 0 else None
    return MemberJob(member, own, model, together, found, halving, ranks, communicator.rank, most, ballot)


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
    found = checkpoints.latest(folder, checkpoints.labels(run)) if run["checkpoint_epochs"] else None
    return found[0] if found else 0


def process_sets(run: RunDefinition) -> list[Members]:
    """The process sets of an ensemble, as Horovod takes them: not those of one rank or of all.

    They are its rows and columns, and those that its way of sharing needs within each column.
    """
    way, rows = WAYS[run["input_sharing"]], _rows(run)
    sets = list(rows)
    for number in range(max(map(len, rows))):
        column = _column(rows, number)
        within = way.process_sets(len(column), preprocessing_ranks(run.parameters, len(column)))
        sets += [column] if way.has_others else []
        sets += [tuple(column[rank] for rank in members) for members in within]
    return [members for members in dict.fromkeys(sets) if 1 < len(members) < run.ranks]


def _rows(run: RunDefinition) -> list[Members]:
    """The ranks of each member."""
    ends = list(itertools.accumulate(ranks_of(run.parameters)))
    return [tuple(range(first, end)) for first, end in zip([0, *ends], ends, strict=False)]


def _column(rows: Sequence[Members], number: int) -> Members:
    """The ranks with this number in their members, which share samples."""
    return tuple(row[number] for row in rows if number < len(row))


def _place(rows: Sequence[Members], rank: int) -> tuple[int, Members]:
    """The number of a rank's row, which is its member's, and the ranks of its column."""
    number = next(number for number, row in enumerate(rows) if rank in row)
    return number, _column(rows, rows[number].index(rank))


def alone(run: RunDefinition, member: Member) -> RunDefinition:
    """The run of one member by itself."""
    changed: dict[str, Any] = {"ensemble": 1, "gpus": ranks_of(run.parameters)[member.number]}
    if member.learning_rate is not None:
        changed["base_learning_rate"] = member.learning_rate
    if member.simulated_samples_per_s is not None:
        changed["simulated_samples_per_s"] = member.simulated_samples_per_s
    derived = dataclasses.replace(
        run.derived,
        seed=run.derived.seed + member.seed,
        batch_size_per_rank=member.batch_size or run.derived.batch_size_per_rank,
    )
    network = run.benchmark.get("networks", {}).get(member.benchmark)
    benchmark = run.benchmark if network is None else {"name": member.benchmark, **network}
    benchmark = {**benchmark, "model": {**benchmark["model"], **member.model}}
    return dataclasses.replace(run, parameters={**run.parameters, **changed}, derived=derived, benchmark=benchmark)


def stream(
    run: RunDefinition,
    communicator: Collectives,
    samples: SampleSource,
    seed: int,
    reading_errors: Errors,
    resumed: Sequence[int],
) -> Stream:
    """The stream of training samples of the ranks of ``communicator``, one of each member; all of them must call.

    run: the whole ensemble's. samples: of an epoch. seed: of their order. reading_errors: as of `Stream`. resumed: of
    the members of these ranks, the number of epochs after which each goes on.
    """
    block_samples, first = run["share_block_samples"] or run.derived.batch_size_per_rank, min(resumed)
    order = Order(
        seed,
        len(samples),
        min(block_samples, len(samples)),
        run.derived.epochs_per_rank - first,
        run.benchmark["shuffle"],
        first_epoch=first,
    )
    order = consumption.limited(order, run)
    backend = backends.of_run(run)
    form = Form.of(backend.block_form(samples, order))
    readers, waits = preprocessing_ranks(run.parameters, communicator.size), run["on_member_lag"] == "wait"
    way = WAYS[run["input_sharing"]](
        Place(communicator, backend, samples, readers, order, form, run["prefetch_blocks"], waits)
    )
    passed_over = (resumed[communicator.rank] - first) * order.blocks_per_epoch
    return Stream(way, reading_errors, run["on_member_failure"] == "continue", passed_over)
