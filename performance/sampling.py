"""Cost of sampling power for the training it watches: the same training with and without the sampler, in pairs.

One process trains NT3 on all cores, a few steps at a time, alternately with the sampler at work beside it and stopped
(SIGSTOP). A pair's ratio is immune to whatever is slower than a pair; the median over many pairs to what is faster. The
sampler reads this machine's sensors and, so that there is something to read anywhere, CPU utilisation (the ``modelled``
sensor). Its own CPU time is told too: where no core is idle, that is what sampling takes from the training.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[1]
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from study import workloads  # noqa: E402
from study.backends.tensorflow.seeds import seed_dropout  # noqa: E402
from study.core import configuration, number_types  # noqa: E402
from study.instruments.power import sampling  # noqa: E402

FEATURES, BATCH = 600, 20


@dataclass(frozen=True)
class Cost:
    """The measured cost of sampling.

    ratio, low, high: time with the sampler over time without, its median and 95 % interval. steps: of a measurement.
    cpu_share: of one core, the sampler's own.
    """

    ratio: float
    low: float
    high: float
    steps: int
    cpu_share: float


def main():
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="local", help="whose sensors to read")
    parser.add_argument("--rate-hz", type=number_types.parse_rate, default=10)
    parser.add_argument("--pairs", type=number_types.parse_count, default=100)
    parser.add_argument("--seconds", type=number_types.parse_seconds, default=0.5, help="length of one measurement")
    options = parser.parse_args()
    cost = measure_cost(options.machine, options.rate_hz, options.pairs, options.seconds)
    print(
        f"sampling at {options.rate_hz:g} Hz, {options.pairs} pairs of {cost.steps} steps on "
        f"{len(os.sched_getaffinity(0))} cores: training takes {100 * (cost.ratio - 1):+.2f} % longer "
        f"(median; 95 % interval {100 * (cost.low - 1):+.2f} to {100 * (cost.high - 1):+.2f} %); the sampler itself "
        f"uses {100 * cost.cpu_share:.2f} % of one core"
    )


def measure_cost(machine, rate_hz, pairs, seconds):
    """Measure the cost of sampling a machine's sensors, over ``pairs`` of measurements of ``seconds`` each."""
    machine = configuration.load_named("machines", machine)
    sensors = {"power_sensors": machine["power_sensors"], "power_model": {"idle_w": 0, "peak_w": 1}}
    run = {"machine": {**sensors, "sampling_hz": rate_hz}}
    step = _make_training_step()
    steps = _count_steps(step, seconds)
    ratios, cpu_s, wall_s = [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder, _start_sampler(run["machine"], folder):
        (sampler,) = [child for child in psutil.Process().children() if "sample_power.py" in " ".join(child.cmdline())]
        for pair in range(pairs):
            seconds_by_arm = {}
            for with_sampler in (True, False) if pair % 2 else (False, True):
                sampler.resume() if with_sampler else sampler.suspend()
                before = _read_cpu_s(sampler)
                seconds_by_arm[with_sampler] = _time_steps(step, steps)
                cpu_s += _read_cpu_s(sampler) - before
            wall_s += seconds_by_arm[True]
            ratios.append(seconds_by_arm[True] / seconds_by_arm[False])
            _show_progress(pair + 1, pairs)
        sampler.resume()
    return Cost(statistics.median(ratios), *compute_median_interval(ratios), steps, cpu_s / wall_s)


def _make_training_step():
    """Make a function that trains NT3 for one step."""
    import tensorflow as tf

    spec = configuration.load_named("benchmarks", "nt3")
    model = workloads.load_benchmark("nt3", spec).build_model((FEATURES, 1))
    model.compile(loss=spec["loss"], optimizer=spec["optimizer"])
    seed_dropout(model, 1)
    numbers = np.random.default_rng(1)
    x = tf.constant(numbers.random((BATCH, FEATURES, 1), dtype=np.float32))
    y = tf.one_hot(numbers.integers(0, 2, BATCH), 2)
    model.train_on_batch(x, y)
    return lambda: model.train_on_batch(x, y)


def _count_steps(step, seconds):
    """Count the steps that take ``seconds``."""
    begun, steps = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        step()
        steps += 1
    return steps


def _time_steps(step, steps):
    """Time a number of steps, in seconds."""
    begun = time.monotonic()
    for _ in range(steps):
        step()
    return time.monotonic() - begun


def _show_progress(done, pairs):
    """Print the progress after every 20 pairs."""
    if done % 20 == 0 or done == pairs:
        print(f"{done} of {pairs} pairs", file=sys.stderr, flush=True)


def _start_sampler(machine, folder):
    """Start the power sampler for a ``with`` block."""
    return sampling.sample_with_launch(machine, True, folder, os.environ)


def _read_cpu_s(process):
    """Read the CPU time (s) of a process."""
    times = process.cpu_times()
    return times.user + times.system


def compute_median_interval(values):
    """Compute the 95 % interval of the median by order statistics, for any distribution."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    return ordered[max(0, int(middle - half))], ordered[min(len(values) - 1, int(np.ceil(middle + half)) - 1)]


if __name__ == "__main__":
    main()
