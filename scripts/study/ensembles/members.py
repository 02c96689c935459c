"""A member of an ensemble: it trains as the only rank of a run of its own, on a stream that all members share.

At the end, the ranks exchange what `describe_member` gives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from study import backends
from study.backends.base import Trainer
from study.communication.collectives import Collectives, Members, SharingCollectives
from study.communication.single_rank import SingleRank
from study.core import cores
from study.core.files import to_finite_or_none
from study.data.samples import SampleSource
from study.ensembles import consumption, votes
from study.ensembles.content import Form
from study.ensembles.order import Order
from study.ensembles.sharing import WAYS, Place
from study.ensembles.stream import ErrorContext, Stream
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import Member, count_preprocessing_ranks, list_members
from study.instruments import counters
from study.training import checkpoints
from study.training import history as history_rows
from study.training.history import History
from study.training.job import Job
from study.workloads.base import Data, Workload

WAIT_COLUMN = "input_wait_per_step_s"


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

    def locate_checkpoints(self, folder: str | Path) -> Path:
        """Return the folder of the member's checkpoints."""
        return checkpoints.locate_folder(folder, self._member.number)

    def make_step_counter(self, trainer: Trainer) -> Callable[[], int]:
        """Return a function that counts the batches taken so far."""
        return lambda: self._stream.batches_taken

    def train(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train or only take batches, write the use of the queue, and return the history."""
        self._trainer, history = trainer, self._train_or_take(trainer, fit)
        self._stream.usage.write(self._ranks / f"usage-{self._rank:05d}.csv", self._rank)
        return history

    def _train_or_take(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train, or measure without training; returns the history."""
        with self._stream.share_in_background():
            if not consumption.has_training(self.run):
                consumption_result = consumption.take_batches(trainer, self._stream, self.run)
                self._rates = consumption_result.rates
                return consumption_result.history
            return fit()

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Evaluate a member that has trained, and cast its vote; empty for one that has trained nothing."""
        if not consumption.has_training(self.run):
            return {}
        metrics = evaluate()
        if self._ballot:
            self._no_vote = self._ballot.cast(self._trainer)
        return metrics

    def collect_results(
        self, history: History, test_metrics: Mapping[str, float], initial_checksum: int
    ) -> dict[str, Any]:
        """The rank's results that all ranks gather: its initial checksum, and `describe_member`."""
        member = describe_member(self._describe(), history, test_metrics)
        return {"initial_weights_crc32": initial_checksum, "member": member}

    def compute_resumed_epoch(self, epochs: int) -> int:
        """The most epochs that any member had trained in an earlier attempt."""
        return self._resumed

    def _describe(self) -> dict[str, Any]:
        """The member's settings, and the measurements of its stream."""
        return {
            "number": self._member.number,
            "parameters": self._trainer.parameters,
            "seed": self._member.seed,
            "learning_rate": self.run.learning_rate,
            "batch_size": self.run.derived.batch_size_per_rank,
            "steps_per_epoch": -(-len(self._stream) // self.run.derived.batch_size_per_rank),
            "no_vote": self._no_vote,
            "resumed_after": self._resumed,
            "affinity": cores.list_allowed_cpus(),
            **_measure_cpu_outside_cores(),
            **self._rates,
            **self._stream.get_measurements(),
        }


def _measure_cpu_outside_cores() -> dict[str, float]:
    """CPU time (s) of this process with its children since it began, and the part outside its cores at most.

    Empty without `core_limit`.
    """
    if cores.limited is None:
        return {}
    return {
        "process_cpu_s": counters.read_process_cpu_s(),
        "other_cores_cpu_s": counters.sum_other_cores_cpu_s(cores.limited),
    }


def describe_member(member: Mapping[str, Any], rows: History, test_metrics: Mapping[str, float]) -> dict[str, Any]:
    """Add the results of training to a member's description.

    member: as a member's job describes it. rows: of its history; empty if it has trained nothing.
    """
    last_epoch = rows[-1] if rows else {}
    names = [name for name in last_epoch if name == "loss" or name.startswith("val_")]
    metrics = [name.removeprefix("val_") for name in names if name.startswith("val_") and name != "val_loss"]
    quality = {name: to_finite_or_none(last_epoch[name]) for name in (*names, *metrics)}
    return {
        **member,
        "epochs": len(rows),
        "epochs_s": math.fsum(history_rows.list_finite_values(rows, "time_s")),
        "losses": history_rows.list_values(rows, "loss") if history_rows.has_column(rows, "loss") else [],
        "quality": quality | {f"test_{name}": to_finite_or_none(value) for name, value in test_metrics.items()},
        "input_stall_s": _compute_stall_s(member, rows),
    }


def _compute_stall_s(member: Mapping[str, Any], rows: History) -> float | None:
    """Sum the seconds that a member waited for batches in all epochs; None if that was not measured."""
    if not history_rows.has_column(rows, WAIT_COLUMN):
        return None
    return math.fsum(history_rows.list_finite_values(rows, WAIT_COLUMN)) * float(member["steps_per_epoch"])


def join_ensemble(
    run: RunDefinition, folder: str | Path, communicator: Collectives, workload: Workload, data: Data
) -> MemberJob:
    """Make this rank a member of the ensemble, and ``data.train`` the shared stream; all ranks must call.

    folder: the run's directory. The stream begins with the first epoch that a member has not trained yet.
    """
    backend, number = backends.get_backend(run.framework), communicator.rank
    source, member = dataclasses.replace(data), list_members(run.parameters)[number]
    member_run, ranks = define_member_run(run, member), Path(folder) / "ranks"
    resumed = communicator.gather(_find_trained_epochs(member_run, checkpoints.locate_folder(folder, number)))
    stream = make_stream(
        run,
        cast(SharingCollectives, communicator),
        data.train,
        lambda: backend.report_read_errors(source.train),
        resumed,
    )
    data.train = stream
    ballot = votes.make_ballot(run, ranks, number, data.test)
    own_rank = communicator if communicator.size == 1 else SingleRank(communicator)
    own_workload = backend.load_workload(member_run)
    return MemberJob(member, member_run, own_workload, own_rank, stream, ranks, number, max(resumed), ballot)


def _find_trained_epochs(run: RunDefinition, folder: Path) -> int:
    """Number of epochs in a member's latest checkpoint, 0 without one. run: of the member alone."""
    checkpoint = checkpoints.read_latest(folder, checkpoints.make_labels(run)) if run["checkpoint_epochs"] else None
    return checkpoint[0] if checkpoint else 0


def list_process_sets(run: RunDefinition) -> list[Members]:
    """List the process sets that the way of sharing needs, without those of one rank or of all ranks."""
    sets = WAYS[run["input_sharing"]].list_process_sets(run.ranks, count_preprocessing_ranks(run.parameters))
    return [members for members in dict.fromkeys(sets) if 1 < len(members) < run.ranks]


def define_member_run(run: RunDefinition, member: Member) -> RunDefinition:
    """Derive the run definition of one member by itself from that of its ensemble."""
    parameters: dict[str, Any] = {"ensemble": 1, "gpus": 1}
    if member.learning_rate is not None:
        parameters["base_learning_rate"] = member.learning_rate
    if member.simulated_samples_per_s is not None:
        parameters["simulated_samples_per_s"] = member.simulated_samples_per_s
    derived = dataclasses.replace(
        run.derived,
        seed=run.derived.seed + member.seed,
        batch_size_per_rank=member.batch_size or run.derived.batch_size_per_rank,
    )
    benchmark = {**run.benchmark, "model": {**run.benchmark["model"], **member.model}}
    return dataclasses.replace(run, parameters={**run.parameters, **parameters}, derived=derived, benchmark=benchmark)


def make_stream(
    run: RunDefinition,
    communicator: SharingCollectives,
    samples: SampleSource,
    reading_errors: ErrorContext,
    resumed: list[int],
) -> Stream:
    """Make this rank's end of the stream of training samples; all ranks must call.

    run: the whole ensemble's. samples: of an epoch. reading_errors: as of `Stream`. resumed: number of epochs after
    which each member goes on.
    """
    block_samples, first_epoch = run["share_block_samples"] or run.derived.batch_size_per_rank, min(resumed)
    order = Order(
        run.derived.seed,
        len(samples),
        min(block_samples, len(samples)),
        run.derived.epochs_per_rank - first_epoch,
        run.benchmark["shuffle"],
        first_epoch=first_epoch,
    )
    order = consumption.limit_order(order, run)
    backend = backends.get_backend(run.framework)
    form = Form.from_arrays(backend.describe_blocks(samples, order))
    readers = count_preprocessing_ranks(run.parameters)
    way = WAYS[run["input_sharing"]](
        Place(communicator, backend, samples, readers, order, form, run["prefetch_blocks"])
    )
    skipped_blocks = (resumed[communicator.rank] - first_epoch) * order.blocks_per_epoch
    return Stream(way, reading_errors, skipped_blocks)
