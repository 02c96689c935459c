"""What sampling power costs the training it watches: the same training with and without the sampler, in pairs.

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
from study.backends.tensorflow.dropout import seed_dropout  # noqa: E402
from study.core import configuration, number_types  # noqa: E402
from study.instruments.power import sampling  # noqa: E402

FEATURES, BATCH = 600, 20


@dataclass(frozen=True)
class Cost:
    """What was measured.

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
    parser.add_argument("--rate-hz", type=number_types.rate, default=10)
    parser.add_argument("--pairs", type=number_types.count, default=100)
    parser.add_argument("--seconds", type=number_types.seconds, default=0.5, help="length of one measurement")
    given = parser.parse_args()
    cost = measure(given.machine, given.rate_hz, given.pairs, given.seconds)
    print(
        f"sampling at {given.rate_hz:g} Hz, {given.pairs} pairs of {cost.steps} steps on "
        f"{len(os.sched_getaffinity(0))} cores: training takes {100 * (cost.ratio - 1):+.2f} % longer "
        f"(median; 95 % interval {100 * (cost.low - 1):+.2f} to {100 * (cost.high - 1):+.2f} %); the sampler itself "
        f"uses {100 * cost.cpu_share:.2f} % of one core"
    )


def measure(machine, rate_hz, pairs, seconds):
    """The `Cost` of sampling a machine's sensors, over ``pairs`` of measurements of ``seconds`` each."""
    machine = configuration.load_named("machines", machine)
    sensors = {"power_sensors": machine["power_sensors"], "power_model": {"idle_w": 0, "peak_w": 1}}
    run = {"machine": {**sensors, "sampling_hz": rate_hz}}
    step = _training()
    steps = _steps(step, seconds)
    ratios, cpu_s, wall_s = [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder, _sampled(run["machine"], folder):
        (sampler,) = [child for child in psutil.Process().children() if "sample_power.py" in " ".join(child.cmdline())]
        for pair in range(pairs):
            found = {}
            for with_sampler in (True, False) if pair % 2 else (False, True):
                sampler.resume() if with_sampler else sampler.suspend()
                before = _cpu_s(sampler)
                found[with_sampler] = _seconds(step, steps)
                cpu_s += _cpu_s(sampler) - before
            wall_s += found[True]
            ratios.append(found[True] / found[False])
            _show_progress(pair + 1, pairs)
        sampler.resume()
    return Cost(statistics.median(ratios), *interval_of_median(ratios), steps, cpu_s / wall_s)


def _training():
    """A function that trains NT3 for one step."""
    import tensorflow as tf

    spec = configuration.load_named("benchmarks", "nt3")
    model = workloads.with_model("nt3", spec).build_model((FEATURES, 1))
    model.compile(loss=spec["loss"], optimizer=spec["optimizer"])
    seed_dropout(model, 1)
    numbers = np.random.default_rng(1)
    x = tf.constant(numbers.random((BATCH, FEATURES, 1), dtype=np.float32))
    y = tf.one_hot(numbers.integers(0, 2, BATCH), 2)
    model.train_on_batch(x, y)
    return lambda: model.train_on_batch(x, y)


def _steps(step, seconds):
    """How many steps take that long."""
    begun, steps = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        step()
        steps += 1
    return steps


def _seconds(step, steps):
    begun = time.monotonic()
    for _ in range(steps):
        step()
    return time.monotonic() - begun


def _show_progress(done, pairs):
    if done % 20 == 0 or done == pairs:
        print(f"{done} of {pairs} pairs", file=sys.stderr, flush=True)


def _sampled(machine, folder):
    return sampling.sample_with_launch(machine, True, folder, os.environ)


def _cpu_s(process):
    times = process.cpu_times()
    return times.user + times.system


def interval_of_median(values):
    """The 95 % interval of the median by order statistics, whatever the values' distribution."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    return ordered[max(0, int(middle - half))], ordered[min(len(values) - 1, int(np.ceil(middle + half)) - 1)]


if __name__ == "__main__":
    main()
