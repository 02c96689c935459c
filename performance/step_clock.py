"""Cost of measuring a rank's own time in each step: the same training with it and without.

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

from sampling import compute_median_interval

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
    parser.add_argument("--steps", type=number_types.parse_count, default=10, help="of an arm at a time")
    parser.add_argument("--pairs", type=number_types.parse_count, default=20)
    parser.add_argument("--cores", type=int, default=1, help="of a rank")
    parser.add_argument("--features", type=int, help="the paper's by default")
    options = parser.parse_args()
    devices.limit_threads(options.cores)
    communicator = Horovod()
    steps = {arm: _make_training_step(arm, options, communicator) for arm in ARMS}
    times = {arm: [] for arm in ARMS}
    for pair in range(options.pairs):
        for arm in ARMS[:: 1 if pair % 2 else -1]:
            times[arm].append(_time_steps(steps[arm], options.steps))
        print(f"{pair + 1} of {options.pairs} pairs", file=sys.stderr, flush=True)
    if communicator.rank == 0:
        _print_costs(options, communicator.size, times)
    communicator.close()


def _print_costs(options, ranks, times):
    """Print the time per step, and the cost of each arm with its interval."""
    without = times[ARMS[0]]
    print(
        f"{options.benchmark}, {ranks} ranks, {options.pairs} pairs of {options.steps} steps, "
        f"{statistics.median(wall for wall, _ in without) / options.steps:.3f} s a step"
    )
    for arm in ARMS[1:]:
        for index, quantity in enumerate(("wall-clock time", "CPU time of rank 0")):
            ratios = [mine[index] / other[index] for mine, other in zip(times[arm], without, strict=True)]
            middle, (low, high) = statistics.median(ratios), compute_median_interval(ratios)
            print(
                f"{arm}, {quantity}: {100 * (middle - 1):+.2f} % "
                f"(median; 95 % interval {100 * (low - 1):+.2f} to {100 * (high - 1):+.2f} %)"
            )


def _make_training_step(arm, options, communicator):
    """Make a function that trains one step of the benchmark's network, already traced."""
    spec = configuration.load_named("benchmarks", options.benchmark) | {"name": options.benchmark}
    run = RunDefinition(
        "",
        identity.fill_defaults({"gpus": communicator.size, "learning_rate_scaling": "none"}),
        Derived(1, spec["batch_size"], 1, 1),
        spec,
        {},
        {},
        {"gpus_per_rank": 0},
    )
    benchmark = workloads.load_benchmark(options.benchmark, spec)
    features = options.features or spec["workload"]["features"]
    shape = (features, 1) if options.benchmark == "nt3" else (features,)
    model = build.compile_model(benchmark, run, communicator, shape)
    communicator.broadcast_variables([*model.variables, *model.optimizer.variables])
    if arm != ARMS[0]:
        StepMeasures(run).observe(model, communicator)
    numbers = np.random.default_rng(communicator.rank)
    x = numbers.random((spec["batch_size"], *shape), dtype=np.float32)
    y = x if options.benchmark == "p1b1" else _make_one_hot_labels(numbers, spec)
    for _ in range(options.steps):
        model.train_on_batch(x, y)
    return lambda: model.train_on_batch(x, y)


def _make_one_hot_labels(numbers, spec):
    """Make a batch of random one-hot labels. numbers: a random generator."""
    classes = spec["model"]["classes"]
    return np.eye(classes, dtype=np.float32)[numbers.integers(0, classes, spec["batch_size"])]


def _time_steps(step, steps):
    """Time steps: (wall-clock, CPU) seconds; where others use the machine, the second is more reliable."""
    begun = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


if __name__ == "__main__":
    main()
