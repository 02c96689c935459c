"""On two ranks: training on halves of a batch against training on the whole batch; rank 0 prints how far off.

``ranks_average.py RUN.yaml``. The run: NT3 with its learning rate not scaled.
"""

import json
import sys

import numpy as np

from study import workloads
from study.backends.tensorflow import build, devices
from study.backends.tensorflow.horovod import Horovod  # before TensorFlow: it chooses Keras 2
from study.experiment.definition import RunDefinition

STEPS, BATCH = 5, 16


def main():
    devices.limit_threads(1)
    ranks = Horovod()
    train(RunDefinition.read(sys.argv[1]), ranks)
    ranks.close()


def train(run, ranks):
    spec = run.benchmark
    spec["model"]["dropout"] = 0.0
    spec["learning_rate"] = 0.5  # so that a step is far larger than the tolerance
    benchmark = workloads.load_benchmark(spec["name"], spec)
    model = build.compile_model(benchmark, run, ranks, shape=(60, 1))
    ranks.broadcast_variables([*model.variables, *model.optimizer.variables])

    alone = Horovod.__new__(Horovod)
    alone.rank, alone.size, alone.distribute_optimizer = 0, 1, lambda optimizer, *_, **__: optimizer
    whole = build.compile_model(benchmark, run, alone, shape=(60, 1))
    whole.set_weights(model.get_weights())
    start = model.get_weights()

    random = np.random.default_rng(0)
    for _ in range(STEPS):
        x = random.random((2 * BATCH, 60, 1), dtype=np.float32)
        y = np.eye(2, dtype=np.float32)[random.integers(0, 2, 2 * BATCH)]
        mine = slice(ranks.rank * BATCH, (ranks.rank + 1) * BATCH)
        model.train_on_batch(x[mine], y[mine])
        whole.train_on_batch(x, y)

    def largest(a, b):
        return max(float(np.abs(p - q).max()) for p, q in zip(a, b, strict=True))

    moved, off = largest(whole.get_weights(), start), largest(whole.get_weights(), model.get_weights())
    if ranks.rank == 0:
        print("RESULT " + json.dumps({"moved": moved, "off": off}))


main()
