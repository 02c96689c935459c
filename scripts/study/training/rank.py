"""One rank, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

from __future__ import annotations

import contextlib
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from study import backends
from study.backends.base import Backend, Trainer, is_finite, rank_samples
from study.communication import allreduce_sweep
from study.communication.collectives import Collectives
from study.core import cores
from study.core.errors import StudyError
from study.core.files import number_or_none, write_json
from study.data.images.source import Images
from study.data.loaders import check_columns, import_for
from study.data.samples import part
from study.experiment.augmentation import augmented
from study.experiment.definition import RunDefinition
from study.instruments import operations
from study.instruments.counters import ReadCounter, Reads, read_peak_memory_mb
from study.instruments.heartbeats import Heartbeat
from study.instruments.phases import PhaseLog
from study.training import binding, checkpoints, divergence, history, staging
from study.training.history import History
from study.training.job import Enter, Job
from study.training.loop import Loop, resume
from study.workloads.base import Data, Workload


def run_rank(
    run: RunDefinition,
    folder: str | Path,
    started: tuple[int, int],
    connect: Callable[..., Collectives],
    heartbeat: Heartbeat | None = None,
    enter: Enter = Job.enter,
) -> int:
    """Train one rank of ``run`` and log into ``folder``, the run's directory.

    started: (wall, monotonic) nanoseconds at the start of the process. connect: as `study.backends.base.Backend`'s, of
    this run. heartbeat: the rank's `study.instruments.heartbeats.Heartbeat`, if a watchdog is running. enter:
    makes the rank's `Job`. Rank 0 writes ``history.csv`` and ``metrics.json``. Each rank writes its own log of phases.
    Returns the rank. Raises `StudyError` if data or ranks are not as planned.
    """
    backend = backends.of_run(run)
    backend.limit_threads(run.compute_threads, run.operations_at_once)
    ranks = connect(with_process_sets=run["staging"] == "node_broadcast")
    _check_cores(run)  # before binding, after which fewer are allowed
    bound = binding.bind(run, ranks)
    gpu = backend.pin_device(run, ranks.local_rank)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{ranks.rank:05d}.jsonl", ranks.rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    if heartbeat:
        heartbeat.phases, heartbeat.ignored = phases, ranks.own_threads
    _check_ranks(run, ranks)
    workload = backend.workload(run)
    if workload.kind == "tables":
        import_for(run["loader"])
    with contextlib.ExitStack() as staged:
        ranks.gather(None)  # no rank loads before every node's sampler runs
        phases.edge("startup", "end")
        found = _Rank(run, Path(folder), backend, ranks, workload, phases, heartbeat, enter).train(staged)
        # It gathers, so that no sampler stops before all ranks have evaluated.
        _write_results(Path(folder), ranks, gpu, found, bound)
    ranks.close()
    return ranks.rank


@dataclass(frozen=True)
class _Results:
    """Results of a rank.

    job: what the rank trained. resumed_after: epochs that an earlier attempt had trained, 0 for none. evidence: for
    `study.records.checks`.
    """

    job: Job
    trainer: Trainer
    data: Data
    history: History
    test_metrics: dict[str, float]
    workload: dict[str, Any]
    reads: Reads
    initial_checksum: int
    resumed_after: int
    final_checksum: int = 0
    swept: list[dict[str, Any]] | None = None
    checkpoints: dict[str, Any] | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rank:
    """A rank that has started. Its methods are the phases of its run, in their order."""

    run: RunDefinition
    folder: Path
    backend: Backend
    ranks: Collectives
    workload: Workload
    phases: PhaseLog
    heartbeat: Heartbeat | None
    enter: Enter

    def train(self, staged: contextlib.ExitStack) -> _Results:
        """From loading to evaluation. staged: ends when no rank reads the files any more."""
        reads = Reads()
        with self.phases("load"):
            files, tables = self._load(reads, staged)
            self.backend.open_elsewhere(self.ranks)
            removable = reads.staged is not None and all(_keep_open(each) for each in tables.values())
        is_table = self.workload.kind == "tables"
        rows = {file: len(each.matrix) if is_table else len(each) for file, each in tables.items()}
        with self.phases("preprocess"):
            data, workload = self._preprocess(tables)
            del tables
            job = self.enter(self.run, self.folder, self.ranks, self.workload, data)
            kept = job.checkpoints(self.folder)
            trainer = self.backend.build(job.workload, job.run, job.communicator, data)
            resumed = resume(trainer, job.run, kept, job.communicator) if job.run["checkpoint_epochs"] else []
        with self.phases("broadcast"):
            trainer.broadcast_state()
        initial = agreed_checksum(trainer, job.communicator)
        if removable:  # all ranks have loaded, so a run that is killed from here on leaves nothing behind
            files.remove_copies()
        self._watch(job, trainer)
        every = job.run["checkpoint_epochs"] if job.communicator.rank == 0 else 0
        writer = checkpoints.Writer(kept, every, checkpoints.labels(job.run))
        with self.phases("train"), self._reading(data, files.reads):
            trained = job.train(
                trainer,
                lambda: Loop(trainer, data, job.run, job.communicator, self.phases, writer, resumed).run(),
            )
        with self.phases("evaluate"), self._named_errors(data):
            test_metrics = job.evaluate(lambda: trainer.evaluate(data.test))
        divergence.check_test(test_metrics, trainer.steps_made())
        if self.ranks.rank == 0 and (profile := trainer.operations()):
            operations.write_profile(self.folder / operations.FILE, profile)
        found = _Results(job, trainer, data, trained, test_metrics, workload, reads, initial, len(resumed))
        return self._checked(found, rows, kept, writer)

    def _checked(self, found: _Results, rows: dict[str, int], kept: Path, writer: checkpoints.Writer) -> _Results:
        """``found`` with what is measured after training, and the evidence for the record's checks.

        rows: loaded, by file. kept: the folder of the checkpoints that ``writer`` wrote.
        """
        job, trainer = found.job, found.trainer
        progress = self.heartbeat.beat if self.heartbeat else lambda: None
        swept = allreduce_sweep.sweep(job.communicator, progress) if job.run["allreduce_sweep"] else None
        final = checksum(trainer)
        has_trained = len(found.history) > found.resumed_after and job.run.parameters.get("measure", "train") == "train"
        evidence = {
            "rows_loaded": rows,
            "weights_finite": is_finite(trainer.weights()),
            "gradients_averaged": trainer.gradients_averaged() if has_trained else None,
            "sparse_gradients": trainer.sparse_gradients(),
        }
        # Last: it puts an earlier state into the model.
        with self._named_errors(found.data):
            cost = checkpoints.cost(
                kept,
                checkpoints.labels(job.run),
                trainer,
                writer.writes,
                lambda: trainer.evaluate(found.data.validation)["loss"],
            )
        progress()
        return replace(found, final_checksum=final, swept=swept, checkpoints=cost, evidence=evidence)

    def _load(self, reads: Reads, staged: contextlib.ExitStack) -> tuple[staging.Files, dict[str, Any]]:
        """The run's files, and what the benchmark takes: loaded tables, or images that are read in training."""
        run = self.run
        if self.workload.kind == "tables":
            check_columns(run.data, run.benchmark["files"])
        files = staging.files(run, self.ranks, self.phases, reads, staged)
        tables: dict[str, Any] = {}
        for _ in range(1 + _straggler_loads(run, self.ranks)):
            if self.workload.kind == "tables":
                tables = staging.tables(run, files, self.ranks, self.phases, reads)
            else:
                tables = self._images(files)
        return files, tables

    def _images(self, files: staging.Files) -> dict[str, Any]:
        with files.reads.count():
            own = self.backend.own_files(self.run)
            images = self.workload.open(files.data, self.run["loader"], self.run.machine["cores_per_rank"], loaded=own)
        for each in images.values():
            for path in each.mapped_files:
                files.reads.add_mapped(path)
        return images

    def _preprocess(self, tables: dict[str, Any]) -> tuple[Data, dict[str, Any]]:
        """The rank's samples, and the record's ``workload``."""
        run, ranks = self.run, self.ranks
        data = self.workload.samples(tables, run.derived.seed)
        data.train = self.backend.source(augmented(data.train, run), ranks)
        workload = {"train_samples": len(data.train), "test_samples": len(data.test), "features": data.features}
        if run["sharding"] == "by_rank" and not self.backend.takes_all_samples(ranks):  # emulated ranks do it later
            data.train = part(data.train, ranks.rank % run.ranks_together, run.ranks_together)
        return data, workload | {"samples_per_rank": rank_samples(data, run)}

    def _watch(self, job: Job, trainer: Trainer) -> None:
        """Give the heartbeat its measure of progress."""
        if self.heartbeat and trainer.makes_steps:  # else other processes send heartbeats
            self.heartbeat.steps = job.steps(trainer)
            if job.run.emulated_ranks > 1:  # one step, of all of them, may take longer than the limit
                self.heartbeat.busy_phases |= {"train"}

    @contextlib.contextmanager
    def _reading(self, data: Data, reads: ReadCounter) -> Iterator[None]:
        """Around training: samples that are read meanwhile count as reads, and a fault in them is named by its file."""
        counted = reads.count() if data.train.is_streamed else contextlib.nullcontext()
        with self._named_errors(data), counted:
            yield

    def _named_errors(self, data: Data) -> contextlib.AbstractContextManager[None]:
        return self.backend.reading_errors(data.train, data.validation, data.test)


def _keep_open(loaded: Any) -> bool:
    """Open what training reads of a file, a table or images, for good; returns whether names are needed no longer."""
    return not isinstance(loaded, Images) or loaded.keep_open()


def _check_ranks(run: RunDefinition, ranks: Collectives) -> None:
    if ranks.size != run.ranks:
        raise StudyError(
            f"the launcher started {ranks.size} ranks, the run has {run.ranks}; was Horovod built for this launcher?"
        )


def _check_cores(run: RunDefinition) -> None:
    limit = run.parameters.get("core_limit", 0)  # a definition made before the key existed lacks it
    most = len(cores.allowed()) if (quota := cores.quota()) is None else min(len(cores.allowed()), quota)
    if limit > most:
        raise StudyError(
            f"core_limit: {limit} is more than the {most:g} cores that a rank may use on {socket.gethostname()}; "
            "give fewer"
        )


def _straggler_loads(run: RunDefinition, ranks: Collectives) -> int:
    """Additional loads of this rank's files: on the last rank only, in runs with a straggler."""
    return run["straggler_loads"] if ranks.rank == ranks.size - 1 else 0


def agreed_checksum(trainer: Trainer, ranks: Collectives) -> int:
    """CRC-32 of the weights, which must be the same on all ranks after the broadcast.

    Raises:
        StudyError: they differ.
    """
    checksums = ranks.gather(checksum(trainer))
    if len(set(checksums)) != 1:
        raise StudyError(f"the ranks' weights differ after the broadcast (CRC-32 by rank: {checksums})")
    return checksums[0]


def checksum(trainer: Trainer) -> int:
    """CRC-32 of the trained weights."""
    found = 0
    for each in trainer.trained_weights():
        found = zlib.crc32(np.ascontiguousarray(each).data, found)
    return found


def _traffic(results: _Results) -> dict[str, float | None]:
    """TCP bytes per epoch of this rank and the busy share of its cores: means without the first epoch, if possible."""
    epochs = results.history[results.resumed_after :]
    epochs = epochs[1:] if len(epochs) > 1 else epochs
    names = ("tcp_sent_bytes", "tcp_received_bytes", "cpu_busy")
    return {name: mean(found) if (found := history.known(epochs, name)) else None for name in names}


def _steps_measured(results: _Results) -> dict[str, Any]:
    """What the steps showed on this rank, as far as they were measured, since the run began or resumed.

    ``compute_per_step_s``: median of the epochs, without the first if possible. ``step_times``: see
    `study.backends.base.Trainer`.
    ``input_wait_per_step_s``: such a median, of samples that are read in training.
    """
    epochs = results.history[results.resumed_after :]
    later = epochs[1:] if len(epochs) > 1 else epochs
    found: dict[str, Any] = {"compute_per_step_s": _median(later, "compute_per_step_s")}
    if step_times := results.trainer.step_times():
        found["step_times"] = {name: float(value) for name, value in step_times.items()}
    if history.has(epochs, "input_wait_per_step_s"):
        found["input_wait_per_step_s"] = _median(later, "input_wait_per_step_s")
    return found


def _median(epochs: History, column: str) -> float | None:
    found = history.known(epochs, column)
    return median(found) if found else None


def _write_results(
    folder: Path,
    ranks: Collectives,
    gpu: str | None,
    found: _Results,
    bound: dict[str, list[int]] | None = None,
) -> None:
    """Gather the results of all ranks; rank 0 writes them.

    bound: the cores to which the rank has bound its threads, see `study.training.binding.bind`.
    """
    mine = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": socket.gethostname(),
        "gpu": gpu,
        **({"cores_usable": cores.usable_at_start} if cores.usable_at_start else {}),
        "peak_memory_mb": read_peak_memory_mb(),
        **found.reads.as_mb(),
        **_traffic(found),
        **_steps_measured(found),
        "final_weights_crc32": found.final_checksum,
        **found.evidence,
        **({"cores": bound} if bound else {}),
        **found.job.results(found.history, found.test_metrics, found.initial_checksum),
    }
    everyone, processes = ranks.collect(mine)
    if ranks.rank:
        return
    history.write(folder / "history.csv", found.history)
    write_json(
        folder / "metrics.json",
        _metrics(ranks, found, everyone) | ({"processes": processes} if processes else {}),
    )


def _metrics(ranks: Collectives, found: _Results, everyone: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of ``metrics.json``. everyone: what each rank tells."""
    return {
        "workload": found.workload,
        "unmatched": found.data.unmatched,
        "resumed_after_epoch": found.job.resumed_after(found.resumed_after) or None,
        "test": {name: number_or_none(value) for name, value in found.test_metrics.items()},
        "parameters": found.trainer.parameters,
        "trainable_parameters": found.trainer.trainable_parameters,
        "initial_weights_crc32": found.initial_checksum,
        "allreduce_sweep": found.swept,
        "checkpoints": found.checkpoints,
        "communication_libraries": ranks.libraries,
        "ranks": everyone,
    }
