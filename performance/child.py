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
from study.data.loaders import map_matrix, touch_pages  # noqa: E402
from study.instruments.counters import read_peak_memory_mb  # noqa: E402


def convert(source, matrix, benchmark, file):
    """Time a conversion, with its verification and checksum."""
    from study.data.conversion import convert
    from study.data.tabular import Form

    form = Form.from_spec(configuration.load_named("benchmarks", benchmark)["files"][file])
    begun = time.perf_counter()
    convert(source, matrix, matrix.removesuffix(".npy") + ".json", form)
    return {"seconds": time.perf_counter() - begun}


def measure_peer(name, source):
    """Measure seconds, memory and checksum of another library that reads a file."""
    return peers.measure_peer(name, source)


def time_copies(matrix, pairs):
    """Time, alternately: to copy a matrix from memory; to map its file and touch all pages; to map and copy it."""
    source = np.array(map_matrix(matrix))
    target = np.ones_like(source)
    ways = {
        "memcpy": lambda: np.copyto(target, source),
        "touched": lambda: touch_pages(map_matrix(matrix)),
        "copied": lambda: np.copyto(target, map_matrix(matrix)),
    }
    times = {name: [] for name in ways}
    for _ in range(int(pairs)):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - begun)
    return times


def hold_matrix(how, matrix):
    """Go through the batches of a matrix that is mapped, loaded or neither, print a line, and wait to be killed."""
    from study.backends.tensorflow.input import make_batches
    from study.data.samples import Arrays

    samples = Arrays(np.zeros((20, 8), dtype=np.float32), np.zeros((20, 1), dtype=np.float32))
    list(make_batches(samples, 20))
    if how != "nothing":
        x = map_matrix(matrix) if how == "mapped" else np.load(matrix, allow_pickle=False)
        samples = Arrays(x, np.zeros((len(x), 1), dtype=np.float32))
        for _ in make_batches(samples, 20):
            pass
    print(json.dumps({}), flush=True)
    sys.stdin.read()


def time_training(how, matrix, rows, epochs):
    """Time the epochs of P1B2's network at full width; also its peak memory.

    how: ``mapped``, batches gathered from the mapped file, or ``array``, handed to Keras.
    """
    model, spec = _make_p1b2()
    y = np.eye(spec["model"]["classes"], dtype=np.float32)[np.arange(int(rows)) % spec["model"]["classes"]]
    if how == "mapped":
        from study.backends.tensorflow.input import make_batches
        from study.data.order import EpochOrder
        from study.data.samples import Arrays

        order = EpochOrder(1, 0)
        data = make_batches(Arrays(map_matrix(matrix)[: int(rows)], y), spec["batch_size"], order)
        return _time_epochs(model, int(epochs), data)
    return _time_epochs(
        model, int(epochs), np.load(matrix, allow_pickle=False)[: int(rows)], y, batch_size=spec["batch_size"]
    )


def time_nt3_epochs(how, samples, features, epochs):
    """Time the epochs of NT3's network without Horovod: by this project's training loop, or by Keras alone."""
    import tensorflow as tf
    import tf_keras as keras

    spec = configuration.load_named("benchmarks", "nt3")
    keras.utils.set_random_seed(1)
    model = workloads.load_benchmark("nt3", spec).build_model((int(features), 1))
    model.compile(loss=spec["loss"], optimizer=keras.optimizers.SGD(spec["learning_rate"]), metrics=["accuracy"])
    x = np.random.default_rng(1).random((int(samples), int(features), 1), dtype=np.float32)
    y = tf.one_hot(np.arange(int(samples)) % 2, 2).numpy()
    from study.backends.tensorflow.input import make_batches
    from study.backends.tensorflow.seeds import seed_dropout
    from study.data.order import EpochOrder
    from study.data.samples import Arrays

    seed_dropout(model, 1)
    if how == "keras":
        return _time_epochs(model, int(epochs), x, y, batch_size=spec["batch_size"])
    return _time_epochs(model, int(epochs), make_batches(Arrays(x, y), spec["batch_size"], EpochOrder(1, 0)))


def time_pytorch_epochs(how, samples, features, epochs):
    """Time the epochs of NT3's network on one process of PyTorch: by this project's loop, or by a plain one."""
    import torch

    torch.set_num_threads(1)
    x = np.random.default_rng(1).random((int(samples), int(features), 1), dtype=np.float32)
    y = np.eye(2, dtype=np.float32)[np.arange(int(samples)) % 2]
    trainer, size = _make_pytorch_trainer(x, y)
    train = (
        _make_plain_loop(trainer.model, x, y, size)
        if how == "plain"
        else lambda n: trainer.train_epoch(n, lambda: None)
    )
    times = []
    for number in range(int(epochs)):
        begun = time.perf_counter()
        train(number)
        times.append(time.perf_counter() - begun)
    return {"first_epoch_s": times[0], "epoch_s": times[1:]}


def _make_pytorch_trainer(x, y):
    """Make a trainer of NT3 on these samples; returns it and the batch size."""
    from study import backends
    from study.communication.single_rank import SingleRank
    from study.data.samples import Arrays
    from study.experiment import expansion, inputs
    from study.machines import machine
    from study.workloads.base import Data

    size = {"train_samples": len(x), "test_samples": 20, "features": x.shape[1], "seed": 1}
    point = {"benchmark": "nt3", "scaling": "weak", "gpus": 1, "loader": "npy", "framework": "pytorch"}
    study = {"description": "bench", "datasets": {"nt3": {"source": "synthetic", **size}}, "tables": ["scaling"],
             "runs": [point | {"strategy": "ddp"}]}  # fmt: skip
    (planned,) = expansion.expand_study("bench", study, "bench").runs
    run = inputs.define_run(planned, machine.load("local"), "data")
    every = type("Every", (), {"local_rank": 0, "own_threads": frozenset(), "libraries": {}})()
    samples, backend = Arrays(x, y), backends.get_backend(run.framework)
    data = Data(samples, samples, samples, features=x.shape[1])
    trainer = backend.build(backend.load_workload(run), run, SingleRank(every), data)
    trainer.begin_training(0)
    return trainer, run.derived.batch_size_per_rank


def _make_plain_loop(model, x, y, size):
    """Make a function that trains an epoch as PyTorch's tutorials do, with shuffled batches and SGD."""
    import torch

    inputs, outputs = torch.from_numpy(x), torch.from_numpy(y)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.001), torch.nn.CrossEntropyLoss()

    def train(_):
        model.train()
        right = total = 0.0
        for chosen in torch.randperm(len(inputs)).split(size):
            outputs_of_batch = model(inputs[chosen])
            value = loss(outputs_of_batch, outputs[chosen])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item() * len(chosen)
            right += (outputs_of_batch.argmax(1) == outputs[chosen].argmax(1)).sum().item()

    return train


def _make_p1b2():
    """Make P1B2's compiled Keras model; returns it and its benchmark's definition."""
    import tf_keras as keras

    spec = configuration.load_named("benchmarks", "p1b2")
    model = workloads.load_benchmark("p1b2", spec).build_model((spec["workload"]["features"],))
    model.compile(loss=spec["loss"], optimizer=keras.optimizers.RMSprop(spec["learning_rate"]))
    return model, spec


def _time_epochs(model, epochs, *data, **options):
    """Fit a model; returns the seconds of the first epoch, of the others, and the peak memory."""
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
