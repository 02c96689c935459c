"""One rank, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

from __future__ import annotations

import contextlib
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from study import workloads
from study.backends.tensorflow import build, devices, shards
from study.backends.tensorflow.local_replica import LocalReplica
from study.backends.tensorflow.parameter_server import Chief
from study.communication import allreduce_sweep
from study.communication.collectives import Communicator, Members
from study.communication.roles import strategy_of
from study.core import cores
from study.core.errors import StudyError
from study.core.files import number_or_none, write_json, written_aside
from study.data.images.source import Images
from study.data.loaders import check_columns, import_for
from study.data.samples import SampleSource, batches, part
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition
from study.instruments.heartbeats import Heartbeat
from study.instruments.io_counters import ReadCounter, Reads
from study.instruments.memory import peak_memory_mb
from study.instruments.phases import PhaseLog
from study.instruments.power import sampling
from study.machines.process_roles import PARAMETER_SERVER
from study.training import binding, checkpoints, divergence, fit, staging
from study.training.job import Enter, Job

# Of metrics.json, and the columns of history.csv that they are.
SQUARES = {
    "steps": "gradient_noise_steps",
    "local": "gradient_square_local",
    "averaged": "gradient_square_averaged",
}


def run_rank(
    run: RunDefinition,
    folder: str | Path,
    started: tuple[int, int],
    make_communicator: Callable[..., Communicator],
    heartbeat: Heartbeat | None = None,
    sampled: sampling.OfProcess = sampling.NOT_SAMPLED,
    enter: Enter = Job.enter,
    may_lose_ranks: bool = False,
) -> int:
    """Train one rank of ``run`` and log into ``folder``, the run's directory.

    started: (wall, monotonic) nanoseconds at the start of the process. make_communicator: returns the rank's
    `study.communication.collectives.Communicator`. heartbeat: the rank's `study.instruments.heartbeats.Heartbeat`, if
    a watchdog is running. sampled: this process's part in sampling its node's power. enter: makes the rank's `Job`.
    may_lose_ranks: whether the run goes on when a rank is lost. One rank, as the job says, writes ``history.csv`` and
    ``metrics.json``. Each rank writes its own log of phases. Returns the rank. Raises `StudyError` if data or ranks
    are not as planned.
    """
    devices.limit_threads(run.compute_threads, run.operations_at_once)
    communicator = make_communicator(with_process_sets=run["staging"] == "node_broadcast")
    rank = communicator.rank
    _check_cores(run)  # before binding, after which fewer are allowed
    bound = binding.bind(run, communicator)
    gpu = devices.pin_device(run, communicator.local_rank)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{rank:05d}.jsonl", rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    if heartbeat:
        heartbeat.phases, heartbeat.ignored = phases, communicator.own_threads
    _check_ranks(run, communicator)
    benchmark = workloads.with_model(run.benchmark["name"], run.benchmark, run.framework)
    if benchmark.kind == "tables":
        import_for(run["loader"])
    if may_lose_ranks:
        sampled.until_last(communicator)
    with contextlib.ExitStack() as staged:
        communicator.gather(None)  # no rank loads before every node's sampler runs
        phases.edge("startup", "end")
        found = _train(run, folder, communicator, benchmark, phases, heartbeat, staged, enter)
        # It gathers, or the sampler ends with the last rank: none stops before all ranks have evaluated.
        _write_results(folder, communicator, gpu, found, bound, may_lose_ranks)
    communicator.close()
    return rank


@dataclass(frozen=True)
class _Results:
    """Results of a rank. resumed_after: epochs that an earlier attempt had trained, 0 for none.

    job: what the rank trained. evidence: for `study.records.checks`. unmatched: rows of the files that were left out,
    see `study.workloads.base.Data`.
    """

    job: Job
    model: Any
    initial_checksum: int
    final_checksum: int
    history: pd.DataFrame
    step_times: dict[str, float] | None
    resumed_after: int
    test_metrics: dict
    workload: dict
    reads: Reads
    swept: list | None
    checkpoints: dict[str, Any] | None
    evidence: dict[str, Any] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)


def _train(
    run: RunDefinition,
    folder: str | Path,
    communicator: Communicator,
    benchmark: workloads.base.Benchmark,
    phases: PhaseLog,
    heartbeat: Heartbeat | None,
    staged: contextlib.ExitStack,
    enter: Enter,
) -> _Results:
    """From loading to evaluation; returns `_Results`. staged: ends when no rank reads the files any more."""
    if benchmark.kind == "tables":
        check_columns(run.data, run.benchmark["files"])
    reads = Reads()
    with phases("load"):
        files = staging.files(run, communicator, phases, reads, staged)
        for _ in range(1 + _straggler_loads(run, communicator)):
            tables = _loaded(run, files, communicator, benchmark, phases, reads)
        readers = shards.opened(communicator.channel) if isinstance(communicator, Chief) else {}
        removable = reads.staged is not None and all(_keep_open(each) for each in tables.values())
    rows = {file: len(each.matrix) if benchmark.kind == "tables" else len(each) for file, each in tables.items()}
    with phases("preprocess"):
        data = benchmark.samples(tables, run.derived.seed)
        del tables
        data.train = data.train.augmented(
            run.parameters.get("augmentation", "light"), learning_rate.first_collapsed_epoch(run)
        )
        if isinstance(communicator, Chief):
            data.train = shards.read_by_workers(data.train, readers, communicator.channel)
        workload = {"train_samples": len(data.train), "test_samples": len(data.test), "features": data.features}
        if run["sharding"] == "by_rank" and communicator.strategy is None:  # emulated ranks and strategies do it later
            data.train = part(data.train, communicator.rank % run.ranks_together, run.ranks_together)
        workload["samples_per_rank"] = fit.samples_of_rank(data, run)
        job = enter(run, folder, communicator, benchmark, data)
        run, benchmark, communicator, kept = job.run, job.benchmark, job.communicator, job.checkpoints(folder)
        twin = LocalReplica(benchmark, run, data.train.shape) if communicator.strategy else None
        with communicator.strategy.scope() if communicator.strategy else contextlib.nullcontext():
            model = build.compile_model(benchmark, run, communicator, data.train.shape)
        resumed = fit.resume(model, run, kept, communicator) if run["checkpoint_epochs"] else (0, [])
    with phases("broadcast"):
        if twin:
            twin.attach(model)
        communicator.broadcast_variables(fit.state(model))
    initial = agreed_checksum(model, communicator)
    if removable:  # all ranks have loaded, so a run that is killed from here on leaves nothing behind
        files.remove_copies()
    if heartbeat and strategy_of(run) != PARAMETER_SERVER:  # whose chief makes no steps; its workers send heartbeats
        heartbeat.steps = job.steps(model)
        if run.emulated_ranks > 1:  # one step, of all of them, may take longer than the limit
            heartbeat.busy_phases |= {"train"}
    with phases("train"), _reading(benchmark, data, files.reads):
        history, writes, steps = job.train(
            model, lambda: fit.fit(model, data, run, kept, communicator, phases, resumed, twin, job.goes_on)
        )
    with phases("evaluate"), benchmark.reading_errors(data):
        test_metrics = job.evaluate(lambda: twin.evaluate(data.test) if twin else _evaluated(model, data.test, run))
    divergence.check_test(test_metrics, int(model.optimizer.iterations.numpy()))
    progress = heartbeat.beat if heartbeat else lambda: None
    swept = allreduce_sweep.sweep(communicator, progress) if run["allreduce_sweep"] else None
    final = _checksum(model)
    has_trained = len(history) > resumed[0] and run.parameters.get("measure", "train") == "train"
    evidence = {
        "rows_loaded": rows,
        "weights_finite": _is_finite(model),
        "gradients_averaged": communicator.has_averaged(model.optimizer, model.trainable_variables)
        if has_trained
        else None,
        "sparse_gradients": twin.has_sparse_gradients() if twin else communicator.sends_sparse,
    }
    # Last: it puts an earlier state into the model.
    with benchmark.reading_errors(data):
        cost = checkpoints.cost(
            kept, fit.labels(run), fit.state(model), writes, lambda: _evaluated(model, data.validation, run)["loss"]
        )
    progress()
    return _Results(
        job,
        model,
        initial,
        final,
        history,
        steps,
        resumed[0],
        test_metrics,
        workload,
        reads,
        swept,
        cost,
        evidence,
        data.unmatched,
    )


def _loaded(
    run: RunDefinition,
    files: staging.Files,
    communicator: Communicator,
    benchmark: workloads.base.Benchmark,
    phases: PhaseLog,
    reads: Reads,
) -> dict[str, Any]:
    """The run's files as the benchmark takes them: loaded tables, or images that are read in training."""
    if benchmark.kind == "tables":
        return staging.tables(run, files, communicator, phases, reads)
    with files.reads.counted():
        # Under a parameter server the workers read those of training.
        own = None if strategy_of(run) != PARAMETER_SERVER else run.data.keys() - shards.trained(run)
        images = benchmark.open(files.data, run["loader"], run.machine["cores_per_rank"], loaded=own)
    for each in images.values():
        for path in each.mapped_files:
            files.reads.mapped(path)
    return images


def _keep_open(loaded: Any) -> bool:
    """Open what training reads of a file, a table or images, for good; returns whether names are needed no longer."""
    return not isinstance(loaded, Images) or loaded.keep_open()


@contextlib.contextmanager
def _reading(benchmark: workloads.base.Benchmark, data: workloads.base.Data, reads: ReadCounter) -> Iterator[None]:
    """Around training: samples that are read meanwhile count as reads, and a fault in them is named by its file."""
    counted = reads.counted() if data.train.is_streamed else contextlib.nullcontext()
    with benchmark.reading_errors(data), data.train.reading_errors(), counted:
        yield


def _evaluated(model: Any, samples: SampleSource, run: RunDefinition) -> dict[str, float]:
    return model.evaluate(batches(samples, run.derived.batch_size_per_rank), verbose=0, return_dict=True)


def _check_ranks(run: RunDefinition, communicator: Communicator) -> None:
    if communicator.size != run.ranks:
        raise StudyError(
            f"the launcher started {communicator.size} ranks, the run has {run.ranks}; "
            "was Horovod built for this launcher?"
        )


def _check_cores(run: RunDefinition) -> None:
    limit = run.parameters.get("core_limit", 0)  # a definition made before the key existed lacks it
    most = len(cores.allowed()) if (quota := cores.quota()) is None else min(len(cores.allowed()), quota)
    if limit > most:
        raise StudyError(
            f"core_limit: {limit} is more than the {most:g} cores that a rank may use on {socket.gethostname()}; "
            "give fewer"
        )


def _straggler_loads(run: RunDefinition, communicator: Communicator) -> int:
    """Additional loads of this rank's files: on the last rank only, in runs with a straggler."""
    return run["straggler_loads"] if communicator.rank == communicator.size - 1 else 0


def agreed_checksum(model: Any, communicator: Communicator, members: Members | None = None) -> int:
    """CRC-32 of the weights, which must be the same on all members of a process set after the broadcast.

    Raises:
        StudyError: they differ.
    """
    checksums = communicator.gather(_checksum(model), members)
    if len(set(checksums)) != 1:
        raise StudyError(f"the ranks' weights differ after the broadcast (CRC-32 by rank: {checksums})")
    return checksums[0]


def _checksum(model: Any) -> int:
    """CRC-32 of the trained weights. Moving statistics of batch normalisation differ between ranks, as their data."""
    checksum = 0
    for variable in model.trainable_variables:
        checksum = zlib.crc32(np.ascontiguousarray(variable.numpy()).data, checksum)
    return checksum


def _is_finite(model: Any) -> bool:
    """Whether all weights of a model are finite, also those that are not trained, such as moving statistics."""
    return all(bool(np.isfinite(variable.numpy()).all()) for variable in model.variables if variable.dtype.is_floating)


def _traffic(results: _Results) -> dict[str, float | None]:
    """TCP bytes per epoch of this rank and the busy share of its cores: means without the first epoch, if possible."""
    epochs = results.history[results.resumed_after :]
    epochs = epochs[1:] if len(epochs) > 1 else epochs
    names = ("tcp_sent_bytes", "tcp_received_bytes", "cpu_busy")
    return {name: number_or_none(epochs[name].mean()) if name in epochs else None for name in names}


def _steps_measured(results: _Results) -> dict[str, Any]:
    """What the steps showed on this rank, as far as they were measured, since the run began or resumed.

    ``compute_per_step_s``: median of the epochs, without the first if possible. ``gradient_squares``: a list per epoch.
    ``step_times``: see `study.backends.tensorflow.step_measures.StepMeasures.step_times`.
    ``input_wait_per_step_s``: such a median, of samples that are read in training. ``input_crc32``: a value per epoch.
    """
    epochs = results.history[results.resumed_after :]
    later = epochs[1:] if len(epochs) > 1 else epochs
    compute = later["compute_per_step_s"].median() if "compute_per_step_s" in epochs else None
    squares = {
        name: [number_or_none(value) for value in epochs[column]]
        for name, column in SQUARES.items()
        if column in epochs
    }
    found: dict[str, Any] = {"compute_per_step_s": number_or_none(compute), "gradient_squares": squares or None}
    if results.step_times:
        found["step_times"] = {name: float(value) for name, value in results.step_times.items()}
    if "input_wait_per_step_s" in epochs:
        found["input_wait_per_step_s"] = number_or_none(later["input_wait_per_step_s"].median())
    if "input_crc32" in epochs:
        found["input_crc32"] = [int(value) for value in epochs["input_crc32"]]
    return found


def _write_results(
    folder: str | Path,
    communicator: Communicator,
    gpu: str | None,
    found: _Results,
    bound: dict[str, list[int]] | None = None,
    may_lose_ranks: bool = False,
) -> None:
    """Gather the results of all ranks; one writes them. Where ranks may be lost, each leaves its own.

    bound: the cores to which the rank has bound its threads, see `study.training.binding.bind`.
    """
    mine = {
        "rank": communicator.rank,
        "local_rank": communicator.local_rank,
        "host": socket.gethostname(),
        "gpu": gpu,
        **({"cores_usable": cores.usable_at_start} if cores.usable_at_start else {}),
        "peak_memory_mb": peak_memory_mb(),
        **found.reads.as_mb(),
        **_traffic(found),
        **_steps_measured(found),
        "final_weights_crc32": found.final_checksum,
        **found.evidence,
        **({"cores": bound} if bound else {}),
        **found.job.results(found.history, found.test_metrics, found.initial_checksum),
    }
    if may_lose_ranks:
        found.job.leave(Path(folder) / "ranks", communicator.rank, _metrics(communicator, found, [mine]), found.history)
        return
    everyone, processes = communicator.collect(mine)
    if communicator.rank != found.job.writing_rank(everyone):
        return
    with written_aside(Path(folder) / "history.csv") as aside:
        found.history.to_csv(aside, index=False)
    write_json(
        Path(folder) / "metrics.json",
        _metrics(communicator, found, everyone) | ({"processes": processes} if processes else {}),
    )


def _metrics(communicator: Communicator, found: _Results, everyone: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of ``metrics.json``. everyone: what each rank tells."""
    return {
        "workload": found.workload,
        "unmatched": found.unmatched,
        "resumed_after_epoch": found.job.resumed_after(found.resumed_after) or None,
        "test": {name: number_or_none(value) for name, value in found.test_metrics.items()},
        "parameters": found.model.count_params(),
        "trainable_parameters": sum(int(np.prod(each.shape)) for each in found.model.trainable_variables),
        "initial_weights_crc32": found.initial_checksum,
        "allreduce_sweep": found.swept,
        "checkpoints": found.checkpoints,
        "communication_libraries": communicator.libraries,
        "ranks": everyone,
    }
