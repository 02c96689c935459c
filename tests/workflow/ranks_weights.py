"""Training runs, one after the other, that also keep rank 0's weights, in weights.npz of each run's folder.

With --slow-rank 1 that rank sleeps in each step.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from study.backends.tensorflow import build
from study.backends.tensorflow.horovod import Horovod
from study.backends.tensorflow.seeds import seed_dropout
from study.data.order import derive_rank_seed
from study.experiment.definition import RunDefinition
from study.experiment.inputs import SEEDS_APART
from study.instruments.phases import now
from study.training import rank

SLEEP_S = 0.05  # in each layer with dropout

parser = argparse.ArgumentParser()
parser.add_argument("folders", type=Path, nargs="+")
parser.add_argument("--slow-rank", type=int)
given = parser.parse_args()
write_results = rank._write_results


def write_weights_too(folder, communicator, gpu, found, *further):
    if communicator.rank == 0:
        np.savez(folder / "weights.npz", *found.trainer.model.get_weights())
    write_results(folder, communicator, gpu, found, *further)


def seed_slow_dropout(model, seed):
    """As ever, but the forward pass waits for the seeds."""
    import tensorflow as tf

    seed_dropout(model, seed)
    slow = [] if given.slow_rank is None else [derive_rank_seed(n * SEEDS_APART, given.slow_rank) for n in range(10)]
    for layer in model.layers:
        if hasattr(layer, "next_seed") and seed in slow:
            layer.next_seed = lambda given_seed=layer.next_seed: tf.ensure_shape(
                tf.numpy_function(lambda seed: time.sleep(SLEEP_S) or seed, [given_seed()], tf.int64), [2]
            )


rank._write_results, build.seed_dropout = write_weights_too, seed_slow_dropout
if len(given.folders) > 1:  # Horovod goes on. If it started once more, a rank could meet another one's former address.
    Horovod.close = lambda self: None
for of_run in given.folders:
    (of_run / "ranks").mkdir(exist_ok=True)
    rank.run_rank(RunDefinition.read(of_run / "run.yaml"), of_run, now(), Horovod)
