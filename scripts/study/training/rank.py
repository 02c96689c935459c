"""What one rank does, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

import contextlib
import os
import socket
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study import models
from study.core.errors import StudyError
from study.core.files import number_or_none, write_json, written_aside
from study.data.loaders import check_columns, import_for
from study.data.randomness import seed_dropout
from study.data.samples import batches, part
from study.instruments.io_counters import SharedReads
from study.instruments.memory import peak_memory_mb
from study.instruments.phases import PhaseLog
from study.instruments.power import telemetry
from study.instruments.power.gpus import visible
from study.training import fit, learning_rate, staging


def run_rank(run, folder, started, make_communicator, signs=None):
    """Train one rank of ``run`` (the content of ``run.yaml``) and log into ``folder``.

    started: (wall, monotonic) nanoseconds when the process began. make_communicator: gives an object
    with `communicator.Horovod`'s methods. signs: the rank's `heartbeats.Signs`, where it is watched.
    Rank 0 alone writes ``history.csv`` and ``metrics.json``; each rank appends to its own log of phases. Returns the
    rank. Raises `StudyError` where data or ranks are not as planned.
    """
    limit_threads(run["machine"]["cores_per_rank"])
    ranks = make_communicator(in_groups=run["parameters"]["staging"] == "node_broadcast")
    gpu = pin_device(run, ranks)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{ranks.rank:05d}.jsonl", ranks.rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    if signs:
        signs.phases, signs.ignored = phases, ranks.threads
    _check_ranks(run, ranks)
    benchmark = models.get(run["benchmark"]["name"], run["benchmark"])
    import_for(run["parameters"]["loader"])
    with telemetry.sampled(run, Path(folder) / "ranks", ranks):
        ranks.gather(None)  # no rank loads before every host's sampler runs
        phases.edge("startup", "end")
        results = _train(run, folder, ranks, benchmark, phases, signs)
        _write_results(folder, ranks, gpu, results)  # gathers too: no sampler stops before all ranks have evaluated
    ranks.close()
    return ranks.rank


@dataclass(frozen=True)
class _Results:
    """What a rank knows at its end. resumed_after: epochs that an earlier attempt had trained, 0 for none."""

    model: object
    initial_checksum: int
    history: pd.DataFrame
    resumed_after: int
    test_metrics: dict
    workload: dict
    reads: SharedReads


def _train(run, folder, ranks, benchmark, phases, signs):
    """From loading to evaluation; returns `_Results`."""
    check_columns(run["data"], run["benchmark"]["files"])
    reads, staged = SharedReads(), contextlib.ExitStack()
    with phases("load"):
        for _ in range(1 + _extra_loads(run, ranks)):
            tables = staging.tables(run, ranks, phases, reads, staged)
    with phases("preprocess"):
        is_scaled = run["parameters"]["loader"] == "mapped"
        data = (benchmark.arrange if is_scaled else benchmark.preprocess)(tables, run["derived"]["seed"])
        del tables
        workload = {"train_samples": len(data.train), "test_samples": len(data.test), "features": data.features}
        if run["parameters"]["sharding"] == "by_rank":
            data.train = part(data.train, ranks.rank, ranks.size)
        workload["samples_per_rank"] = len(data.train)
        model = compile_model(benchmark, run, ranks, data.features)
        resumed = fit.resume(model, run, folder, ranks) if run["parameters"]["checkpoint_epochs"] else (0, [])
    with phases("broadcast"):
        ranks.broadcast(fit.state(model))
    initial = _agreed_checksum(model, ranks)
    staged.close()
    if signs:
        signs.steps = model.optimizer.iterations.numpy
    with phases("train"):
        history = fit.fit(model, data, run, folder, ranks, phases, resumed)
    with phases("evaluate"):
        batch_size = run["derived"]["batch_size_per_rank"]
        test_metrics = model.evaluate(batches(data.test, batch_size), verbose=0, return_dict=True)
    return _Results(model, initial, history, resumed[0], test_metrics, workload, reads)


def limit_threads(cores):
    """Give TensorFlow as many threads as the machine's file says a rank has cores. Before TensorFlow's first use."""
    os.environ["OMP_NUM_THREADS"] = str(cores)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def pin_device(run, ranks):
    """One GPU a rank, by local rank, its memory taken as needed; none where the machine's file gives none.

    Returns the GPU's UUID, None without a GPU or where it cannot be told.
    """
    import tensorflow as tf

    if run["machine"]["gpus_per_rank"] == 0:
        tf.config.set_visible_devices([], "GPU")
        return None
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise StudyError("the machine's file gives each rank a GPU (gpus_per_rank: 1) but TensorFlow sees none here")
    # A launcher such as jsrun may show each rank its own GPU only.
    index = 0 if len(gpus) == 1 else ranks.local_rank
    tf.config.set_visible_devices(gpus[index], "GPU")
    tf.config.experimental.set_memory_growth(gpus[index], True)
    uuids = visible()
    return uuids[index] if uuids and index < len(uuids) else None


def compile_model(benchmark, run, ranks, features):
    """Build and compile the model with the distributed optimizer; all its variables exist afterwards.

    Weights, dropout and shuffling are seeded by repeat and rank: ranks differ until the broadcast.
    """
    import tf_keras as keras

    keras.utils.set_random_seed(run["derived"]["seed"] + ranks.rank)
    model = benchmark.build_model(features)
    optimizers = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}
    optimizer = optimizers[run["benchmark"]["optimizer"]](learning_rate=learning_rate.scaled(run, ranks.size))
    optimizer = ranks.distributed_optimizer(optimizer)
    model.compile(loss=run["benchmark"]["loss"], optimizer=optimizer, metrics=benchmark.metrics())
    optimizer.build(model.trainable_variables)
    seed_dropout(model, run["derived"]["seed"] + ranks.rank)
    return model


def _check_ranks(run, ranks):
    if ranks.size != run["parameters"]["gpus"]:
        raise StudyError(
            f"the launcher started {ranks.size} ranks, the run has {run['parameters']['gpus']}; "
            "was Horovod built for this launcher?"
        )


def _extra_loads(run, ranks):
    """How often this rank loads its files once more: the last rank only, in runs that make loading uneven."""
    return run["parameters"]["extra_loads"] if ranks.rank == ranks.size - 1 else 0


def _agreed_checksum(model, ranks):
    """CRC-32 of the weights, which after the broadcast must be the same on all ranks."""
    checksums = ranks.gather(_checksum(model))
    if len(set(checksums)) != 1:
        raise StudyError(f"the ranks' weights differ after the broadcast (CRC-32 by rank: {checksums})")
    return checksums[0]


def _checksum(model):
    checksum = 0
    for array in model.get_weights():
        checksum = zlib.crc32(np.ascontiguousarray(array), checksum)
    return checksum


def _write_results(folder, ranks, gpu, results):
    """Gather what each rank knows; rank 0 writes ``history.csv`` and ``metrics.json``."""
    mine = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": socket.gethostname(),
        "gpu": gpu,
        "peak_memory_mb": peak_memory_mb(),
        **results.reads.as_mb(),
        "final_weights_crc32": _checksum(results.model),
    }
    everyone = ranks.gather(mine)
    if ranks.rank != 0:
        return
    with written_aside(Path(folder) / "history.csv") as aside:
        results.history.to_csv(aside, index=False)
    write_json(
        Path(folder) / "metrics.json",
        {
            "workload": results.workload,
            "resumed_after_epoch": results.resumed_after or None,
            "test": {name: number_or_none(value) for name, value in results.test_metrics.items()},
            "parameters": results.model.count_params(),
            "initial_weights_crc32": results.initial_checksum,
            "ranks": everyone,
        },
    )
