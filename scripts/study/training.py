"""What one rank does, from start-up to evaluation (icpp2019, Figure 2 and section 2.3.2)."""

import json
import os
import socket
import time
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from study import benchmarks
from study.batches import batches
from study.errors import StudyError
from study.files import number_or_none, write_json, written_aside
from study.loaders import LOADERS
from study.memory import peak_memory_mb
from study.phases import PhaseLog


def run_rank(run, folder, started, make_communicator):
    """Train one rank of ``run`` (the content of ``run.yaml``) and log into ``folder``.

    started: (wall, monotonic) nanoseconds when the process began. make_communicator: gives an object
    with `study.communication.Horovod`'s methods. Rank 0 alone writes ``history.csv`` and ``metrics.json``;
    each rank appends to its own log of phases. Raises `StudyError` where data or ranks are not as planned.
    """
    limit_threads(run["machine"]["cores_per_rank"])
    ranks = make_communicator()
    pin_device(run, ranks)
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{ranks.rank:05d}.jsonl", ranks.rank, socket.gethostname())
    phases.edge("startup", "begin", started)
    _check_ranks(run, ranks)
    benchmark = benchmarks.get(run["benchmark"]["name"], run["benchmark"])
    phases.edge("startup", "end")

    with phases("load"):
        train, test = (_load(run, split) for split in ("train", "test"))
    with phases("preprocess"):
        data = benchmark.preprocess(train, test)
        del train, test
    model = compile_model(benchmark, run, ranks, features=data.x_train.shape[1])
    with phases("broadcast"):
        ranks.broadcast([*model.variables, *model.optimizer.variables])
    initial = _agreed_checksum(model, ranks)
    with phases("train"):
        history = _fit(model, data, run, ranks)
    with phases("evaluate"):
        test_set = batches(data.x_test, data.y_test, _batch_size(run), shuffle=False)
        test_metrics = model.evaluate(test_set, verbose=0, return_dict=True)
    _write_results(folder, ranks, history, test_metrics, initial, model)
    ranks.close()


def limit_threads(cores):
    """Give TensorFlow as many threads as the machine's file says a rank has cores. Before TensorFlow's first use."""
    os.environ["OMP_NUM_THREADS"] = str(cores)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def pin_device(run, ranks):
    """One GPU a rank, by local rank, its memory taken as needed; none where the machine's file gives none."""
    import tensorflow as tf

    if run["machine"]["gpus_per_rank"] == 0:
        tf.config.set_visible_devices([], "GPU")
        return
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise StudyError("the machine's file gives each rank a GPU (gpus_per_rank: 1) but TensorFlow sees none here")
    # A launcher such as jsrun may show each rank its own GPU only.
    gpu = gpus[0] if len(gpus) == 1 else gpus[ranks.local_rank]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)


def effective_learning_rate(run, size):
    """The benchmark's learning rate, times the ranks under ``learning_rate_scaling: linear`` (icpp2019, 2.3.2)."""
    rate = run["benchmark"]["learning_rate"]
    return rate * size if run["parameters"]["learning_rate_scaling"] == "linear" else rate


def compile_model(benchmark, run, ranks, features):
    """Build and compile the model with the distributed optimizer; all its variables exist afterwards.

    Weights, dropout and shuffling are seeded by repeat and rank: ranks differ until the broadcast.
    """
    import tf_keras as keras

    keras.utils.set_random_seed(run["derived"]["seed"] + ranks.rank)
    model = benchmark.build_model(features)
    optimizer = keras.optimizers.SGD(learning_rate=effective_learning_rate(run, ranks.size))
    optimizer = ranks.distributed_optimizer(optimizer)
    model.compile(loss=run["benchmark"]["loss"], optimizer=optimizer, metrics=["accuracy"])
    optimizer.build(model.trainable_variables)
    return model


def _check_ranks(run, ranks):
    if ranks.size != run["parameters"]["gpus"]:
        raise StudyError(
            f"the launcher started {ranks.size} ranks, the run has {run['parameters']['gpus']}; "
            "was Horovod built for this launcher?"
        )


def _load(run, split):
    matrix = LOADERS[run["parameters"]["loader"]](run["data"][split])
    sidecar = json.loads(Path(run["data"][f"{split}_sidecar"]).read_text(encoding="utf-8"))
    if list(matrix.shape) != sidecar["shape"] or matrix.dtype != np.float32:
        raise StudyError(
            f"{run['data'][split]}: {matrix.shape} {matrix.dtype} was loaded, "
            f"{run['data'][f'{split}_sidecar']} says {sidecar['shape']} float32"
        )
    return matrix


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
        """Wall time of each epoch, validation included, and the learning rate in force."""

        def __init__(self):
            super().__init__()
            self.rows = []

        def on_epoch_begin(self, epoch, logs=None):
            self._begun = time.monotonic_ns()

        def on_epoch_end(self, epoch, logs=None):
            seconds = (time.monotonic_ns() - self._begun) / 1e9
            rate = float(keras.backend.get_value(self.model.optimizer.learning_rate))
            self.rows.append({"epoch": epoch + 1, "time_s": seconds, **logs, "learning_rate": rate})
            if ranks.rank == 0:
                print(f"epoch {epoch + 1}/{self.params['epochs']}: {seconds:.2f} s, {_shown(logs)}", flush=True)

    if _batch_size(run) > len(data.x_train):
        raise StudyError(
            f"batch_size: {_batch_size(run)} is larger than the training set of {len(data.x_train)} samples"
        )
    times = EpochTimes()
    model.fit(
        batches(data.x_train, data.y_train, _batch_size(run), shuffle=True),
        epochs=run["derived"]["epochs_per_rank"],
        validation_data=batches(data.x_validation, data.y_validation, _batch_size(run), shuffle=False),
        callbacks=[times],
        verbose=0,
    )
    return pd.DataFrame(times.rows)


def _shown(metrics):
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _write_results(folder, ranks, history, test_metrics, initial, model):
    """Gather what each rank knows; rank 0 writes ``history.csv`` and ``metrics.json``."""
    mine = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": socket.gethostname(),
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
            "test": {name: number_or_none(value) for name, value in test_metrics.items()},
            "parameters": model.count_params(),
            "initial_weights_crc32": initial,
            "ranks": everyone,
        },
    )
