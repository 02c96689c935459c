"""On two ranks of PyTorch: training on halves of a batch against training on the whole batch; see ranks_average.py.

``ranks_average_pytorch.py RUN.yaml``. Rank 0 also prints the bytes that it sent.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

from study import backends
from study.communication.single_rank import SingleRank
from study.data.samples import Arrays
from study.experiment.definition import RunDefinition
from study.workloads.base import Data

STEPS, BATCH = 5, 16


def main():
    run = RunDefinition.read(sys.argv[1])
    run.benchmark["model"]["dropout"] = 0.0
    run.benchmark["learning_rate"] = 0.5  # so that a step is far larger than the tolerance
    backend = backends.get_backend(run.framework)
    backend.limit_threads(1)
    ranks = backend.connect(run)
    train(run, backend, ranks)
    ranks.close()


def train(run, backend, ranks):
    random = np.random.default_rng(0)
    x = random.random((STEPS, 2 * BATCH, 60, 1), dtype=np.float32)
    y = np.eye(2, dtype=np.float32)[random.integers(0, 2, (STEPS, 2 * BATCH))]
    samples = Arrays(x[0], y[0])
    data = Data(samples, samples, samples, features=60)
    together = backend.build(backend.load_workload(run), run, ranks, data)
    together.broadcast_state()
    whole = backend.build(backend.load_workload(run), run, SingleRank(ranks), data)
    whole.load_state(together.get_state())
    start = [each.copy() for each in whole.get_weights()]
    for each in (together, whole):
        each.begin_training(0)
    traffic = ranks.traffic()
    traffic.begin()
    mine = slice(ranks.rank * BATCH, (ranks.rank + 1) * BATCH)
    for inputs, outputs in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        together.step(inputs[mine], outputs[mine])
    ranks.gather(None)
    sent = traffic.end()["tcp_sent_bytes"]
    for inputs, outputs in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        whole.step(inputs, outputs)

    def largest(one, other):
        return max(float(np.abs(p - q).max()) for p, q in zip(one, other, strict=True))

    found = {"moved": largest(whole.get_weights(), start), "off": largest(whole.get_weights(), together.get_weights()),
             "sent_per_step": sent / STEPS, "gradient_bytes": 4 * together.trainable_parameters,
             "has_averaged": together.has_averaged_gradients()}  # fmt: skip
    own = np.concatenate([each.ravel() for each in together.get_weights()])
    found["differing_ranks"] = len({zlib.crc32(each) for each in ranks.gather(own)}) - 1
    np.save(Path(sys.argv[1]).with_suffix(".npy"), own)
    if ranks.rank == 0:
        print("RESULT " + json.dumps(found), flush=True)


main()
