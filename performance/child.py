"""One measurement in a process of its own; prints JSON. What is timed is told by the function's name and docstring."""

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import peers  # noqa: E402

from study import workloads  # noqa: E402
from study.core import configuration  # noqa: E402
from study.data.loaders import map_matrix, touch  # noqa: E402
from study.instruments.memory import peak_memory_mb  # noqa: E402


def convert(source, matrix, benchmark, file):
    """Seconds of a conversion, verification and checksum included."""
    from study.data.conversion import convert
    from study.data.tabular import Form

    form = Form.of(configuration.load_named("benchmarks", benchmark)["files"][file])
    begun = time.perf_counter()
    convert(source, matrix, matrix.removesuffix(".npy") + ".json", form)
    return {"seconds": time.perf_counter() - begun}


def peer(name, source):
    """Seconds, memory and checksum of another library that reads a file."""
    return peers.measure(name, source)


def copy(matrix, pairs):
    """Seconds to copy a matrix from memory; to map its file and touch all pages; to map it and copy it; alternately."""
    source = np.array(map_matrix(matrix))
    target = np.ones_like(source)
    ways = {
        "memcpy": lambda: np.copyto(target, source),
        "touched": lambda: touch(map_matrix(matrix)),
        "copied": lambda: np.copyto(target, map_matrix(matrix)),
    }
    times = {name: [] for name in ways}
    for _ in range(int(pairs)):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - begun)
    return times


def hold(how, matrix):
    """Go through the batches of a matrix that is mapped, loaded, or neither; then tell so and wait for the end."""
    from study.backends.tensorflow.input import batches
    from study.data.samples import Arrays

    samples = Arrays(np.zeros((20, 8), dtype=np.float32), np.zeros((20, 1), dtype=np.float32))
    list(batches(samples, 20))
    if how != "nothing":
        x = map_matrix(matrix) if how == "mapped" else np.load(matrix, allow_pickle=False)
        samples = Arrays(x, np.zeros((len(x), 1), dtype=np.float32))
        for _ in batches(samples, 20):
            pass
    print(json.dumps({}), flush=True)
    sys.stdin.read()


def train(how, matrix, rows, epochs):
    """Epoch times and peak memory of P1B2's network at full width.

    how: ``mapped``, batches gathered from the mapped file, or ``array``, handed to Keras.
    """
    model, spec = _p1b2()
    y = np.eye(spec["model"]["classes"], dtype=np.float32)[np.arange(int(rows)) % spec["model"]["classes"]]
    if how == "mapped":
        from study.backends.tensorflow.input import batches
        from study.data.order import EpochOrder
        from study.data.samples import Arrays

        order = EpochOrder(1, 0)
        data = batches(Arrays(map_matrix(matrix)[: int(rows)], y), spec["batch_size"], order)
        return _epochs(model, int(epochs), data)
    return _epochs(
        model, int(epochs), np.load(matrix, allow_pickle=False)[: int(rows)], y, batch_size=spec["batch_size"]
    )


def nt3_epochs(how, samples, features, epochs):
    """Epoch times of NT3's network without Horovod: by this project's training loop, or by Keras alone."""
    import tensorflow as tf
    import tf_keras as keras

    spec = configuration.load_named("benchmarks", "nt3")
    keras.utils.set_random_seed(1)
    model = workloads.with_model("nt3", spec).build_model((int(features), 1))
    model.compile(loss=spec["loss"], optimizer=keras.optimizers.SGD(spec["learning_rate"]), metrics=["accuracy"])
    x = np.random.default_rng(1).random((int(samples), int(features), 1), dtype=np.float32)
    y = tf.one_hot(np.arange(int(samples)) % 2, 2).numpy()
    from study.backends.tensorflow.dropout import seed_dropout
    from study.backends.tensorflow.input import batches
    from study.data.order import EpochOrder
    from study.data.samples import Arrays

    seed_dropout(model, 1)
    if how == "keras":
        return _epochs(model, int(epochs), x, y, batch_size=spec["batch_size"])
    return _epochs(model, int(epochs), batches(Arrays(x, y), spec["batch_size"], EpochOrder(1, 0)))


def _p1b2():
    import tf_keras as keras

    spec = configuration.load_named("benchmarks", "p1b2")
    model = workloads.with_model("p1b2", spec).build_model((spec["workload"]["features"],))
    model.compile(loss=spec["loss"], optimizer=keras.optimizers.RMSprop(spec["learning_rate"]))
    return model, spec


def _epochs(model, epochs, *data, **options):
    """The time of the first epoch, in which TensorFlow builds its graph, those of the others, and the peak memory."""
    import tf_keras as keras

    times = []

    class Times(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begun = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            times.append(time.perf_counter() - self.begun)

    model.fit(*data, epochs=epochs, verbose=0, callbacks=[Times()], **options)
    return {"first_epoch_s": times[0], "epoch_s": times[1:], "peak_memory_mb": peak_memory_mb()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
