"""One rank, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

from __future__ import annotations

import contextlib
import os
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from study import backends
from study.backends.base import Backend, Trainer, count_rank_samples, is_finite
from study.communication import allreduce_sweep
from study.communication.collectives import Collectives
from study.core import cores
from study.core.errors import StudyError
from study.core.files import to_finite_or_none, write_json
from study.data import page_cache
from study.data.images.source import Images
from study.data.loaders import check_columns, import_modules
from study.data.samples import select_part
from study.experiment.augmentation import augment_samples
from study.experiment.definition import RunDefinition
from study.instruments.counters import ReadCounter, Reads, read_peak_memory_mb
from study.instruments.heartbeats import Heartbeat
from study.instruments.phases import PhaseLog
from study.training import binding, checkpoints, divergence, history, staging
from study.training.history import History
from study.training.job import CreateJob, Job
from study.training.loop import Loop, resume_from_checkpoint
from study.workloads.base import Data, Workload


def run_rank(
    run: RunDefinition,
    folder: str | Path,
    started: tuple[int, int],
    connect: Callable[..., Collectives],
    heartbeat: Heartbeat | None = None,
    create_job: CreateJob = Job.create,
) -> int:
    """Train one rank of ``run`` and log into ``folder``, the run's directory.

    started: (wall, monotonic) nanoseconds at the start of the process. connect: as `study.backends.base.Backend`'s, of
    this run. heartbeat: the rank's `study.instruments.heartbeats.Heartbeat`, if a watchdog is running. create_job:
    makes the rank's `Job`. Rank 0 writes ``history.csv`` and ``metrics.json``. Each rank writes its own log of phases.
    Returns the rank. Raises `StudyError` if data or ranks are not as planned.
    """
    backend = backends.get_backend(run.framework)
    backend.limit_threads(run.compute_threads, run.operations_at_once)
    ranks = connect()
    _check_core_limit(run)  # before binding, after which fewer are allowed
    bound_cores = binding.bind_threads(run, ranks)
    gpu = backend.pin_device(run, ranks.local_rank)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{ranks.rank:05d}.jsonl", ranks.rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    if heartbeat:
        heartbeat.phases, heartbeat.ignored = phases, ranks.own_threads
    _check_rank_count(run, ranks)
    workload = backend.load_workload(run)
    if workload.kind == "tables":
        import_modules(run["loader"])
    with contextlib.ExitStack() as staged:
        ranks.gather(None)  # no rank loads before every node's sampler runs
        phases.edge("startup", "end")
        results = _Rank(run, Path(folder), backend, ranks, workload, phases, heartbeat, create_job).train(staged)
        # It gathers, so that no sampler stops before all ranks have evaluated.
        _write_results(Path(folder), ranks, gpu, results, bound_cores)
    if page_cache.RELEASE in os.environ and ranks.local_rank == 0:
        staging.release_pages(run)
    ranks.close()
    return ranks.rank


@dataclass(frozen=True)
class _Results:
    """The results of a rank.

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
    create_job: CreateJob

    def train(self, staged: contextlib.ExitStack) -> _Results:
        """Load, train, evaluate and measure. staged: ends when no rank reads the files any more."""
        reads = Reads()
        with self.phases("load"):
            files, tables = self._load(reads, staged)
            self.backend.open_on_workers(self.ranks)
            removable = reads.staged is not None and all(_open_for_training(each) for each in tables.values())
        is_table = self.workload.kind == "tables"
        rows = {file: len(each.matrix) if is_table else len(each) for file, each in tables.items()}
        with self.phases("preprocess"):
            data, workload = self._preprocess(tables)
            del tables
            job = self.create_job(self.run, self.folder, self.ranks, self.workload, data)
            checkpoint_folder = job.locate_checkpoints(self.folder)
            trainer = self.backend.build(job.workload, job.run, job.communicator, data)
            earlier_rows = (
                resume_from_checkpoint(trainer, job.run, checkpoint_folder, job.communicator)
                if job.run["checkpoint_epochs"]
                else []
            )
        with self.phases("broadcast"):
            trainer.broadcast_state()
        initial = compute_agreed_checksum(trainer, job.communicator)
        if removable:  # all ranks have loaded, so a run that is killed from here on leaves nothing behind
            files.remove_copies()
        self._watch_progress(job, trainer)
        every = job.run["checkpoint_epochs"] if job.communicator.rank == 0 else 0
        writer = checkpoints.Writer(checkpoint_folder, every, checkpoints.make_labels(job.run))
        with self.phases("train"), self._count_reads(data, files.reads):
            trained = job.train(
                trainer,
                lambda: Loop(trainer, data, job.run, job.communicator, self.phases, writer, earlier_rows).run(),
            )
        with self.phases("evaluate"), self._name_read_errors(data):
            test_metrics = job.evaluate(lambda: trainer.evaluate(data.test))
        divergence.check_test_loss(test_metrics, trainer.count_steps_made())
        results = _Results(job, trainer, data, trained, test_metrics, workload, reads, initial, len(earlier_rows))
        return self._measure_afterwards(results, rows, checkpoint_folder, writer)

    def _measure_afterwards(
        self, results: _Results, rows: dict[str, int], checkpoint_folder: Path, writer: checkpoints.Writer
    ) -> _Results:
        """``results`` with what is measured after training, and the evidence for the record's checks.

        rows: loaded, by file. checkpoint_folder: the folder of the checkpoints that ``writer`` wrote.
        """
        job, trainer = results.job, results.trainer
        progress = self.heartbeat.beat if self.heartbeat else lambda: None
        swept = allreduce_sweep.time_allreduces(job.communicator, progress) if job.run["allreduce_sweep"] else None
        final = compute_checksum(trainer)
        has_trained = (
            len(results.history) > results.resumed_after and job.run.parameters.get("measure", "train") == "train"
        )
        evidence = {
            "rows_loaded": rows,
            "weights_finite": is_finite(trainer.get_weights()),
            "gradients_averaged": trainer.has_averaged_gradients() if has_trained else None,
            "sparse_gradients": trainer.sends_sparse_gradients(),
        }
        # Last: it puts an earlier state into the model.
        with self._name_read_errors(results.data):
            cost = checkpoints.measure_cost(
                checkpoint_folder,
                checkpoints.make_labels(job.run),
                trainer,
                writer.writes,
                lambda: trainer.evaluate(results.data.validation)["loss"],
            )
        progress()
        return replace(results, final_checksum=final, swept=swept, checkpoints=cost, evidence=evidence)

    def _load(self, reads: Reads, staged: contextlib.ExitStack) -> tuple[staging.Files, dict[str, Any]]:
        """(The run's files, the benchmark's input by file: loaded tables, or images that are read in training)."""
        run = self.run
        if self.workload.kind == "tables":
            check_columns(run.data, run.benchmark["files"])
        files = staging.provide_files(run, self.ranks, self.phases, reads, staged)
        tables: dict[str, Any] = {}
        for _ in range(1 + _count_straggler_loads(run, self.ranks)):
            tables = staging.load_tables(run, files) if self.workload.kind == "tables" else self._open_images(files)
        return files, tables

    def _open_images(self, files: staging.Files) -> dict[str, Any]:
        """Open the images of each file, and load those that this process keeps in memory."""
        with files.reads.count():
            own = self.backend.list_own_files(self.run)
            images = self.workload.open(files.data, self.run["loader"], self.run.machine["cores_per_rank"], loaded=own)
        for each in images.values():
            for path in each.mapped_files:
                files.reads.add_mapped(path)
        return images

    def _preprocess(self, tables: dict[str, Any]) -> tuple[Data, dict[str, Any]]:
        """(The rank's samples, the record's ``workload``)."""
        run, ranks = self.run, self.ranks
        data = self.workload.samples(tables, run.derived.seed)
        data.train = self.backend.make_training_source(augment_samples(data.train, run), ranks)
        workload = {"train_samples": len(data.train), "test_samples": len(data.test), "features": data.features}
        if run["sharding"] == "by_rank" and not self.backend.divides_samples(ranks):  # emulated ranks do it later
            data.train = select_part(data.train, ranks.rank % run.ranks_together, run.ranks_together)
        return data, workload | {"samples_per_rank": count_rank_samples(data, run)}

    def _watch_progress(self, job: Job, trainer: Trainer) -> None:
        """Give the heartbeat the count of steps by which it sees progress."""
        if self.heartbeat and trainer.makes_steps:  # else other processes send heartbeats
            self.heartbeat.steps = job.make_step_counter(trainer)
            if job.run.emulated_ranks > 1:  # one step, of all of them, may take longer than the limit
                self.heartbeat.busy_phases |= {"train"}

    @contextlib.contextmanager
    def _count_reads(self, data: Data, reads: ReadCounter) -> Iterator[None]:
        """Count what the block, which trains, reads of the samples, and name the file in errors of reading."""
        counted = reads.count() if data.train.is_streamed else contextlib.nullcontext()
        with self._name_read_errors(data), counted:
            yield

    def _name_read_errors(self, data: Data) -> contextlib.AbstractContextManager[None]:
        """Raise errors of reading the samples, within the block, with the name of their file."""
        return self.backend.report_read_errors(data.train, data.validation, data.test)


def _open_for_training(loaded: Any) -> bool:
    """Keep open what training reads of a file; returns whether the file's name is needed no longer."""
    return not isinstance(loaded, Images) or loaded.keep_open()


def _check_rank_count(run: RunDefinition, ranks: Collectives) -> None:
    """Raise `StudyError` if the launcher has started another number of ranks than the run has."""
    if ranks.size != run.ranks:
        raise StudyError(
            f"the launcher started {ranks.size} ranks, the run has {run.ranks}; was Horovod built for this launcher?"
        )


def _check_core_limit(run: RunDefinition) -> None:
    """Raise `StudyError` if the key ``core_limit`` is larger than the number of cores that the rank may use."""
    limit = run.parameters.get("core_limit", 0)  # a definition made before the key existed lacks it
    most = (
        len(cores.list_allowed_cpus())
        if (quota := cores.read_cpu_quota()) is None
        else min(len(cores.list_allowed_cpus()), quota)
    )
    if limit > most:
        raise StudyError(
            f"core_limit: {limit} is more than the {most:g} cores that a rank may use on {socket.gethostname()}; "
            "give fewer"
        )


def _count_straggler_loads(run: RunDefinition, ranks: Collectives) -> int:
    """The number of additional loads by which the last rank becomes a straggler; 0 on other ranks."""
    return run["straggler_loads"] if ranks.rank == ranks.size - 1 else 0


def compute_agreed_checksum(trainer: Trainer, ranks: Collectives) -> int:
    """CRC-32 of the weights; it must be equal on all ranks after the broadcast.

    Raises:
        StudyError: they differ.
    """
    checksums = ranks.gather(compute_checksum(trainer))
    if len(set(checksums)) != 1:
        raise StudyError(f"the ranks' weights differ after the broadcast (CRC-32 by rank: {checksums})")
    return checksums[0]


def compute_checksum(trainer: Trainer) -> int:
    """CRC-32 of the trained weights."""
    crc = 0
    for each in trainer.get_trained_weights():
        crc = zlib.crc32(np.ascontiguousarray(each).data, crc)
    return crc


def _average_traffic(results: _Results) -> dict[str, float | None]:
    """Mean TCP bytes per epoch and busy share of the cores of this rank, without the first epoch if possible."""
    epochs = results.history[results.resumed_after :]
    epochs = epochs[1:] if len(epochs) > 1 else epochs
    names = ("tcp_sent_bytes", "tcp_received_bytes", "cpu_busy")
    return {name: mean(values) if (values := history.list_finite_values(epochs, name)) else None for name in names}


def _summarize_steps(results: _Results) -> dict[str, Any]:
    """The times of this rank's steps, as far as they were measured, since the run began or resumed.

    ``compute_per_step_s``: median of the epochs, without the first if possible. ``step_times``: see
    `study.backends.base.Trainer`.
    ``input_wait_per_step_s``: such a median, of samples that are read in training.
    """
    epochs = results.history[results.resumed_after :]
    later = epochs[1:] if len(epochs) > 1 else epochs
    measures: dict[str, Any] = {"compute_per_step_s": _compute_median(later, "compute_per_step_s")}
    if step_times := results.trainer.summarize_step_times():
        measures["step_times"] = {name: float(value) for name, value in step_times.items()}
    if history.has_column(epochs, "input_wait_per_step_s"):
        measures["input_wait_per_step_s"] = _compute_median(later, "input_wait_per_step_s")
    return measures


def _compute_median(epochs: History, column: str) -> float | None:
    """The median of a column over the epochs; None without finite values."""
    values = history.list_finite_values(epochs, column)
    return median(values) if values else None


def _write_results(
    folder: Path,
    ranks: Collectives,
    gpu: str | None,
    results: _Results,
    bound_cores: dict[str, list[int]] | None = None,
) -> None:
    """Gather the results of all ranks; rank 0 writes ``history.csv`` and ``metrics.json``.

    bound_cores: of `study.training.binding.bind_threads`.
    """
    own_entry = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": socket.gethostname(),
        "gpu": gpu,
        **({"cores_usable": cores.usable_at_start} if cores.usable_at_start else {}),
        "peak_memory_mb": read_peak_memory_mb(),
        **results.reads.as_mb(),
        **_average_traffic(results),
        **_summarize_steps(results),
        "final_weights_crc32": results.final_checksum,
        **results.evidence,
        **({"cores": bound_cores} if bound_cores else {}),
        **results.job.collect_results(results.history, results.test_metrics, results.initial_checksum),
    }
    entries, processes = ranks.collect(own_entry)
    if ranks.rank:
        return
    history.write_history(folder / "history.csv", results.history)
    write_json(
        folder / "metrics.json",
        _make_metrics(ranks, results, entries) | ({"processes": processes} if processes else {}),
    )


def _make_metrics(ranks: Collectives, results: _Results, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of ``metrics.json``. entries: of the ranks."""
    return {
        "workload": results.workload,
        "unmatched": results.data.unmatched,
        "resumed_after_epoch": results.job.compute_resumed_epoch(results.resumed_after) or None,
        "test": {name: to_finite_or_none(value) for name, value in results.test_metrics.items()},
        "parameters": results.trainer.parameters,
        "trainable_parameters": results.trainer.trainable_parameters,
        "initial_weights_crc32": results.initial_checksum,
        "allreduce_sweep": results.swept,
        "checkpoints": results.checkpoints,
        "communication_libraries": ranks.libraries,
        "ranks": entries,
    }
