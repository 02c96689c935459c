"""What one rank does, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

import os
import socket
import time
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from study import benchmarks, learning_rate
from study.benchmarks.interface import Table
from study.errors import StudyError
from study.files import number_or_none, write_json, written_aside
from study.loaders import check_columns, import_for, load, read_sidecar
from study.memory import peak_memory_mb
from study.phases import PhaseLog, now
from study.power import telemetry
from study.power.gpus import visible
from study.samples import batches, part


def run_rank(run, folder, started, make_communicator):
    """Train one rank of ``run`` (the content of ``run.yaml``) and log into ``folder``.

    started: (wall, monotonic) nanoseconds when the process began. make_communicator: gives an object
    with `study.communication.Horovod`'s methods. Rank 0 alone writes ``history.csv`` and ``metrics.json``;
    each rank appends to its own log of phases. Returns the rank. Raises `StudyError` where data or ranks are not as
    planned.
    """
    limit_threads(run["machine"]["cores_per_rank"])
    ranks = make_communicator()
    gpu = pin_device(run, ranks)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{ranks.rank:05d}.jsonl", ranks.rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    _check_ranks(run, ranks)
    benchmark = benchmarks.get(run["benchmark"]["name"], run["benchmark"])
    import_for(run["parameters"]["loader"])
    with telemetry.sampled(run, Path(folder) / "ranks", ranks):
        ranks.gather(None)  # no rank loads before every host's sampler runs
        phases.edge("startup", "end")
        results = _train(run, ranks, benchmark, phases)
        _write_results(folder, ranks, gpu, *results)  # gathers too: no sampler stops before all ranks have evaluated
    ranks.close()
    return ranks.rank


def _train(run, ranks, benchmark, phases):
    """From loading to evaluation; returns what there is to write (see `_write_results`)."""
    check_columns(run["data"], run["benchmark"]["files"])
    with phases("load"):
        for _ in range(1 + _extra_loads(run, ranks)):
            tables = {file: _load(run, file) for file in run["data"]}
    with phases("preprocess"):
        data = benchmark.preprocess(tables, run["derived"]["seed"])
        del tables
        workload = {"train_samples": len(data.train), "test_samples": len(data.test), "features": data.features}
        if run["parameters"]["sharding"] == "by_rank":
            data.train = part(data.train, ranks.rank, ranks.size)
        workload["samples_per_rank"] = len(data.train)
        model = compile_model(benchmark, run, ranks, data.features)
    with phases("broadcast"):
        ranks.broadcast([*model.variables, *model.optimizer.variables])
    initial = _agreed_checksum(model, ranks)
    with phases("train"):
        history = _fit(model, data, run, ranks)
    with phases("evaluate"):
        test_metrics = model.evaluate(batches(data.test, _batch_size(run), shuffle=False), verbose=0, return_dict=True)
    return history, test_metrics, initial, model, workload


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


def _load(run, file):
    paths, form = run["data"][file], run["benchmark"]["files"][file]
    matrix = load(run["parameters"]["loader"], paths["path"], paths["sidecar"], form)
    return Table(matrix, [code["values"] for code in read_sidecar(paths["sidecar"])["codes"]])


def _batch_size(run):
    return run["derived"]["batch_size_per_rank"]


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


def _fit(model, data, run, ranks):
    """Train; one row an epoch, in a data frame with the columns of ``history.csv``."""
    import tf_keras as keras

    class EpochTimes(keras.callbacks.Callback):
        """When each epoch began, its wall time, validation included, and the learning rate in force."""

        def __init__(self):
            super().__init__()
            self.rows = []

        def on_epoch_begin(self, epoch, logs=None):
            self._begun_wall, self._begun = now()

        def on_epoch_end(self, epoch, logs=None):
            seconds = (time.monotonic_ns() - self._begun) / 1e9
            rate = float(keras.backend.get_value(self.model.optimizer.learning_rate))
            row = {"epoch": epoch + 1, "time_s": seconds, **logs, "learning_rate": rate}
            self.rows.append(row | {"begin_wall_ns": self._begun_wall})
            if ranks.rank == 0:
                print(f"epoch {epoch + 1}/{self.params['epochs']}: {seconds:.2f} s, {_shown(logs)}", flush=True)

    batch_size = _batch_size(run)
    if batch_size > len(data.train):
        raise StudyError(f"batch_size: {batch_size} is larger than the {len(data.train)} training samples of a rank")
    times = EpochTimes()
    model.fit(
        batches(data.train, batch_size, run["benchmark"]["shuffle"]),
        epochs=run["derived"]["epochs_per_rank"],
        validation_data=batches(data.validation, batch_size, shuffle=False),
        callbacks=[*learning_rate.warmup(run, ranks.size, -(-len(data.train) // batch_size)), times],
        verbose=0,
    )
    return pd.DataFrame(times.rows)


def _shown(metrics):
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _write_results(folder, ranks, gpu, history, test_metrics, initial, model, workload):
    """Gather what each rank knows; rank 0 writes ``history.csv`` and ``metrics.json``."""
    mine = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": socket.gethostname(),
        "gpu": gpu,
        "peak_memory_mb": peak_memory_mb(),
        "final_weights_crc32": _checksum(model),
    }
    everyone = ranks.gather(mine)
    if ranks.rank != 0:
        return
    with written_aside(Path(folder) / "history.csv") as aside:
        history.to_csv(aside, index=False)
    write_json(
        Path(folder) / "metrics.json",
        {
            "workload": workload,
            "test": {name: number_or_none(value) for name, value in test_metrics.items()},
            "parameters": model.count_params(),
            "initial_weights_crc32": initial,
            "ranks": everyone,
        },
    )
