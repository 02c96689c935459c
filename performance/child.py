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
from study.instruments.counters import read_peak_memory_mb  # noqa: E402


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


def pytorch_epochs(how, samples, features, epochs):
    """Epoch times of NT3's network on one process of PyTorch: by this project's training loop, or by a plain one."""
    import torch

    torch.set_num_threads(1)
    x = np.random.default_rng(1).random((int(samples), int(features), 1), dtype=np.float32)
    y = np.eye(2, dtype=np.float32)[np.arange(int(samples)) % 2]
    trainer, size = _pytorch_trainer(x, y)
    train = _plain_loop(trainer.model, x, y, size) if how == "plain" else lambda n: trainer.train_epoch(n, lambda: None)
    times = []
    for number in range(int(epochs)):
        begun = time.perf_counter()
        train(number)
        times.append(time.perf_counter() - begun)
    return {"first_epoch_s": times[0], "epoch_s": times[1:]}


def _pytorch_trainer(x, y):
    """A trainer of NT3 on these samples, and the batch size."""
    from study import backends
    from study.communication.alone import Alone
    from study.data.samples import Arrays
    from study.experiment import expansion, inputs
    from study.machines import machine
    from study.workloads.base import Data

    size = {"train_samples": len(x), "test_samples": 20, "features": x.shape[1], "seed": 1}
    point = {"benchmark": "nt3", "scaling": "weak", "gpus": 1, "loader": "npy", "framework": "pytorch"}
    study = {"description": "bench", "datasets": {"nt3": {"source": "synthetic", **size}}, "tables": ["scaling"],
             "runs": [point | {"strategy": "ddp"}]}  # fmt: skip
    (planned,) = expansion.expand("bench", study, "bench").runs
    run = inputs.define(planned, machine.load("local"), "data")
    every = type("Every", (), {"local_rank": 0, "own_threads": frozenset(), "libraries": {}})()
    samples, backend = Arrays(x, y), backends.of_run(run)
    data = Data(samples, samples, samples, features=x.shape[1])
    trainer = backend.build(backend.workload(run), run, Alone(every), data)
    trainer.begin(0)
    return trainer, run.derived.batch_size_per_rank


def _plain_loop(model, x, y, size):
    """A function that trains an epoch as PyTorch's tutorials do, with shuffled batches and SGD."""
    import torch

    inputs, outputs = torch.from_numpy(x), torch.from_numpy(y)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.001), torch.nn.CrossEntropyLoss()

    def train(_):
        model.train()
        right = total = 0.0
        for chosen in torch.randperm(len(inputs)).split(size):
            found = model(inputs[chosen])
            value = loss(found, outputs[chosen])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item() * len(chosen)
            right += (found.argmax(1) == outputs[chosen].argmax(1)).sum().item()

    return train


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
    return {"first_epoch_s": times[0], "epoch_s": times[1:], "peak_memory_mb": read_peak_memory_mb()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
