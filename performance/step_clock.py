"""What measuring a rank's own time in each step costs training: the same training with it and without.

One process trains a benchmark's network at full width, some steps at a time, alternately with each arm's own model. A
pair's ratio is immune to whatever is slower than a pair. On one rank the share is the largest: a step has no allreduce.
On several, each arm trains on all of them:

    python performance/step_clock.py
    scripts/horovodrun.py --gloo -np 2 python performance/step_clock.py
"""

import argparse
import os
import statistics
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from sampling import interval_of_median

from study import workloads
from study.backends.tensorflow import build, devices
from study.backends.tensorflow.horovod import Horovod
from study.backends.tensorflow.step_measures import StepMeasures
from study.core import configuration, number_types
from study.experiment import identity
from study.experiment.definition import Derived, RunDefinition

ARMS = ("without", "own time")


def main():
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="p1b2")
    parser.add_argument("--steps", type=number_types.count, default=10, help="of an arm at a time")
    parser.add_argument("--pairs", type=number_types.count, default=20)
    parser.add_argument("--cores", type=int, default=1, help="of a rank")
    parser.add_argument("--features", type=int, help="the paper's by default")
    given = parser.parse_args()
    devices.limit_threads(given.cores)
    communicator = Horovod()
    steps = {arm: _training(arm, given, communicator) for arm in ARMS}
    times = {arm: [] for arm in ARMS}
    for pair in range(given.pairs):
        for arm in ARMS[:: 1 if pair % 2 else -1]:
            times[arm].append(_seconds(steps[arm], given.steps))
        print(f"{pair + 1} of {given.pairs} pairs", file=sys.stderr, flush=True)
    if communicator.rank == 0:
        _show(given, communicator.size, times)
    communicator.close()


def _show(given, ranks, times):
    without = times[ARMS[0]]
    print(
        f"{given.benchmark}, {ranks} ranks, {given.pairs} pairs of {given.steps} steps, "
        f"{statistics.median(wall for wall, _ in without) / given.steps:.3f} s a step"
    )
    for arm in ARMS[1:]:
        for index, what in enumerate(("wall-clock time", "CPU time of rank 0")):
            ratios = [mine[index] / other[index] for mine, other in zip(times[arm], without, strict=True)]
            middle, (low, high) = statistics.median(ratios), interval_of_median(ratios)
            print(
                f"{arm}, {what}: {100 * (middle - 1):+.2f} % "
                f"(median; 95 % interval {100 * (low - 1):+.2f} to {100 * (high - 1):+.2f} %)"
            )


def _training(arm, given, communicator):
    """A function that trains one step of the benchmark's network, already traced."""
    spec = configuration.load_named("benchmarks", given.benchmark) | {"name": given.benchmark}
    run = RunDefinition(
        "",
        identity.filled({"gpus": communicator.size, "learning_rate_scaling": "none"}),
        Derived(1, spec["batch_size"], 1, 1),
        spec,
        {},
        {},
        {"gpus_per_rank": 0},
    )
    benchmark = workloads.with_model(given.benchmark, spec)
    features = given.features or spec["workload"]["features"]
    shape = (features, 1) if given.benchmark == "nt3" else (features,)
    model = build.compile_model(benchmark, run, communicator, shape)
    communicator.broadcast_variables([*model.variables, *model.optimizer.variables])
    if arm != ARMS[0]:
        StepMeasures(run).observe(model, communicator)
    numbers = np.random.default_rng(communicator.rank)
    x = numbers.random((spec["batch_size"], *shape), dtype=np.float32)
    y = x if given.benchmark == "p1b1" else _one_hot(numbers, spec)
    for _ in range(given.steps):
        model.train_on_batch(x, y)
    return lambda: model.train_on_batch(x, y)


def _one_hot(numbers, spec):
    classes = spec["model"]["classes"]
    return np.eye(classes, dtype=np.float32)[numbers.integers(0, classes, spec["batch_size"])]


def _seconds(step, steps):
    """Wall-clock and CPU time; where others use the machine, the second tells more."""
    begun = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


if __name__ == "__main__":
    main()
