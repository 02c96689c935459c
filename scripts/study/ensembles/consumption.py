"""Members that do not train: they measure the rate of the input or of steps, or simulate an accelerator."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from study.backends.base import Trainer
from study.ensembles.order import Order
from study.ensembles.stream import Stream
from study.experiment.definition import RunDefinition
from study.instruments.counters import Traffic
from study.instruments.phases import now
from study.training.history import History


class Accelerator:
    """Computes on one batch at a time, at ``rate`` samples per second, and takes no processor time.

    It stands for the division of work of pittman2018, where the GPU trains and the processor prepares the samples, on
    a machine without GPUs. Nothing is trained.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """clock, sleep: seconds; others than the real ones are for tests."""
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._busy_until = clock()
        self.idle_s = 0.0  # since it was made: waiting for batches

    def compute(self, samples: int) -> None:
        """Queue a batch, and return when the device begins with it: then the next batch can be fetched.

        Fetching overlaps with computing, as with a device that works on its own. Sleeping too long is made up for by
        the next batch.
        """
        now = self._clock()
        begin = max(now, self._busy_until)
        self.idle_s += begin - self._busy_until
        self._busy_until = begin + samples / self._rate
        if begin > now:
            self._sleep(begin - now)

    def finish(self) -> None:
        """Wait until the last batch is computed."""
        remaining_s = self._busy_until - self._clock()
        if remaining_s > 0:
            self._sleep(remaining_s)


# Batches before the timed ones, and timed (pittman2018, section V-A, does not say how many).
PEAK_BATCHES = 100, 100
COMPUTE_BATCHES = 10, 50
READY_POLL_S = 0.001
READY_WAIT_S = 10.0  # longest wait for a full buffer before a step


def has_training(run: RunDefinition) -> bool:
    """True if the members of an ensemble train, and do not only take batches."""
    return run["measure"] == "train" and run["compute"] == "measured"


def limit_order(order: Order, run: RunDefinition) -> Order:
    """Cut an order to the blocks that a run reads: a throughput is measured over a fixed number of batches."""
    if run["measure"] == "train":
        return order
    batches = sum(PEAK_BATCHES if run["measure"] == "peak_throughput" else COMPUTE_BATCHES)
    size = run.derived.batch_size_per_rank
    whole_epochs, last_batches = divmod(batches, math.ceil(order.samples / size))
    blocks = whole_epochs * order.blocks_per_epoch + math.ceil(
        min(last_batches * size, order.samples) / order.block_samples
    )
    return dataclasses.replace(order, epochs=whole_epochs + 1, most_blocks=blocks)


@dataclass
class Consumption:
    """Measurements of a member that does not train. rates: samples per second by name."""

    history: History
    rates: dict[str, float | None]


def take_batches(trainer: Trainer, stream: Stream, run: RunDefinition) -> Consumption:
    """Take batches and measure, as the run's keys ``measure`` and ``compute`` say. run: of the member."""
    if run["measure"] == "peak_throughput":
        return _measure_peak_rate(trainer, stream, run)
    if run["measure"] == "compute_throughput":
        return _measure_compute_rate(trainer, stream, run)
    return _simulate_training(trainer, stream, run, Accelerator(run["simulated_samples_per_s"]))


def _repeat_epochs(trainer: Trainer, stream: Stream) -> Iterator[Any]:
    """Yield the batches of one epoch after the other, without end."""
    epoch_batches = trainer.make_batches(stream)
    while True:
        yield from epoch_batches


def _measure_peak_rate(trainer: Trainer, stream: Stream, run: RunDefinition) -> Consumption:
    """Measure the rate at which samples arrive if nothing is done with them (pittman2018, section V-A)."""
    begun_wall, begun = now()
    traffic = Traffic()
    traffic.begin()
    batches = _repeat_epochs(trainer, stream)
    warm_up, timed = PEAK_BATCHES
    for _ in range(warm_up):
        next(batches)
    begin_s, samples = time.monotonic(), 0
    for _ in range(timed):
        samples += int(next(batches)[0].shape[0])
    rate = samples / (time.monotonic() - begin_s)
    return Consumption(_make_history(run, begun_wall, begun, traffic), {"peak_samples_per_s": rate})


def _measure_compute_rate(trainer: Trainer, stream: Stream, run: RunDefinition) -> Consumption:
    """Measure the rate of training steps, each begun with a full buffer (pittman2018, section V-A, r_c).

    Only whole batches count: for the smaller one at the end of an epoch, the framework compiles the step again.
    """
    begun_wall, begun = now()
    traffic = Traffic()
    traffic.begin()
    batches = _repeat_epochs(trainer, stream)
    warm_up, timed = COMPUTE_BATCHES
    samples, seconds = 0, 0.0
    for number in range(warm_up + timed):
        x, y = next(batches)
        _wait_for_full_buffer(stream)
        begin_s = time.monotonic()
        trainer.step(x, y)
        if number >= warm_up and int(x.shape[0]) == run.derived.batch_size_per_rank:
            seconds += time.monotonic() - begin_s
            samples += int(x.shape[0])
    return Consumption(_make_history(run, begun_wall, begun, traffic), {"compute_samples_per_s": samples / seconds})


def _wait_for_full_buffer(stream: Stream) -> None:
    """Wait until the stream's buffer is full, at most `READY_WAIT_S`."""
    deadline = time.monotonic() + READY_WAIT_S
    while not stream.is_ready and time.monotonic() < deadline:
        time.sleep(READY_POLL_S)


def _make_history(run: RunDefinition, begun_wall: int, begun: int, traffic: Traffic) -> History:
    """Make the history of a measured throughput: one row, as of an epoch, from ``begun`` (monotonic ns) to now."""
    seconds = (time.monotonic_ns() - begun) / 1e9
    return [_make_row(run, 1, seconds, begun_wall, begun) | traffic.end()]


def _make_row(run: RunDefinition, epoch: int, seconds: float, begun_wall: int, begun: int) -> dict[str, Any]:
    """Make the columns that every row of a history has. epoch: from 1."""
    return {
        "epoch": epoch,
        "time_s": seconds,
        "learning_rate": run.learning_rate,
        "begin_wall_ns": begun_wall,
        "begin_monotonic_ns": begun,
    }


def _simulate_training(trainer: Trainer, stream: Stream, run: RunDefinition, accelerator: Accelerator) -> Consumption:
    """Run all epochs on a simulated accelerator, without loss or validation."""
    rows, traffic = [], Traffic()
    epoch_batches = trainer.make_batches(stream)
    for epoch in range(run.derived.epochs_per_rank):
        begun_wall, begun = now()
        traffic.begin()
        idle_before_s, steps = accelerator.idle_s, 0
        for x, *_ in epoch_batches:
            accelerator.compute(int(x.shape[0]))
            steps += 1
        accelerator.finish()
        seconds = (time.monotonic_ns() - begun) / 1e9
        wait_s = (accelerator.idle_s - idle_before_s) / steps
        row = _make_row(run, epoch + 1, seconds, begun_wall, begun)
        rows.append(row | {"steps_s": seconds, "input_wait_per_step_s": wait_s} | traffic.end())
    return Consumption(rows, {})
