"""What takes batches from the stream where nothing is trained, or where only the rate of training is measured."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from study.backends.base import Trainer
from study.ensembles.order import Order
from study.ensembles.simulated import Accelerator
from study.ensembles.stream import Stream
from study.experiment.definition import RunDefinition
from study.instruments.counters import Traffic
from study.instruments.phases import now
from study.training.history import History

# Batches before the timed ones, and timed (pittman2018, section V-A, does not say how many).
PEAK = 100, 100
COMPUTE = 10, 50
READY_POLL_S = 0.001
READY_WAIT_S = 10.0  # longest wait for a full buffer before a step


def trains(run: RunDefinition) -> bool:
    """Whether the members of an ensemble train: not those that only take batches."""
    return run["measure"] == "train" and run["compute"] == "measured"


def limited(order: Order, run: RunDefinition) -> Order:
    """The order as far as a run reads it: a measured throughput takes a number of batches, over as many epochs."""
    if run["measure"] == "train":
        return order
    number = sum(PEAK if run["measure"] == "peak_throughput" else COMPUTE)
    size = run.derived.batch_size_per_rank
    whole, left = divmod(number, math.ceil(order.samples / size))
    blocks = whole * order.blocks_per_epoch + math.ceil(min(left * size, order.samples) / order.block_samples)
    return dataclasses.replace(order, epochs=whole + 1, most_blocks=blocks)


@dataclass
class Taken:
    """What a member that does not train has measured. rates: in samples per second, by name."""

    history: History
    rates: dict[str, float | None]


def take(trainer: Trainer, stream: Stream, run: RunDefinition) -> Taken:
    """Take batches as the run's keys ``measure`` and ``compute`` say. run: of the member."""
    if run["measure"] == "peak_throughput":
        return _peak(trainer, stream, run)
    if run["measure"] == "compute_throughput":
        return _compute(trainer, stream, run)
    return _simulate(trainer, stream, run, Accelerator(run["simulated_samples_per_s"]))


def _endless(trainer: Trainer, stream: Stream) -> Iterator[Any]:
    """The batches of one epoch after the other."""
    of_epoch = trainer.batches(stream)
    while True:
        yield from of_epoch


def _peak(trainer: Trainer, stream: Stream, run: RunDefinition) -> Taken:
    """The rate at which samples arrive if nothing is done with them (pittman2018, section V-A)."""
    begun_wall, begun = now()
    traffic = Traffic()
    traffic.begin()
    batches = _endless(trainer, stream)
    before, timed = PEAK
    for _ in range(before):
        next(batches)
    first, samples = time.monotonic(), 0
    for _ in range(timed):
        samples += int(next(batches)[0].shape[0])
    rate = samples / (time.monotonic() - first)
    return Taken(_history(run, begun_wall, begun, traffic), {"peak_samples_per_s": rate})


def _compute(trainer: Trainer, stream: Stream, run: RunDefinition) -> Taken:
    """The rate of training steps, each begun when the buffer is full again (pittman2018, section V-A, r_c).

    Of whole batches: for the smaller one at the end of an epoch, the framework compiles the step once more.
    """
    begun_wall, begun = now()
    traffic = Traffic()
    traffic.begin()
    batches = _endless(trainer, stream)
    before, timed = COMPUTE
    samples, seconds = 0, 0.0
    for number in range(before + timed):
        x, y = next(batches)
        _await(stream)
        first = time.monotonic()
        trainer.step(x, y)
        if number >= before and int(x.shape[0]) == run.derived.batch_size_per_rank:
            seconds += time.monotonic() - first
            samples += int(x.shape[0])
    return Taken(_history(run, begun_wall, begun, traffic), {"compute_samples_per_s": samples / seconds})


def _await(stream: Stream) -> None:
    deadline = time.monotonic() + READY_WAIT_S
    while not stream.is_ready and time.monotonic() < deadline:
        time.sleep(READY_POLL_S)


def _history(run: RunDefinition, begun_wall: int, begun: int, traffic: Traffic) -> History:
    """The history of a measured throughput: one row, as of an epoch, for the time that it took."""
    seconds = (time.monotonic_ns() - begun) / 1e9
    return [_row(run, 1, seconds, begun_wall, begun) | traffic.end()]


def _row(run: RunDefinition, epoch: int, seconds: float, begun_wall: int, begun: int) -> dict[str, Any]:
    """The columns of every row of a history. epoch: from 1."""
    return {
        "epoch": epoch,
        "time_s": seconds,
        "learning_rate": run.learning_rate,
        "begin_wall_ns": begun_wall,
        "begin_monotonic_ns": begun,
    }


def _simulate(trainer: Trainer, stream: Stream, run: RunDefinition, accelerator: Accelerator) -> Taken:
    """All epochs on a simulated accelerator; there is neither loss nor validation."""
    rows, traffic = [], Traffic()
    of_epoch = trainer.batches(stream)
    for epoch in range(run.derived.epochs_per_rank):
        begun_wall, begun = now()
        traffic.begin()
        idle, steps = accelerator.idle_s, 0
        for x, *_ in of_epoch:
            accelerator.compute(int(x.shape[0]))
            steps += 1
        accelerator.finish()
        seconds = (time.monotonic_ns() - begun) / 1e9
        waited = (accelerator.idle_s - idle) / steps
        row = _row(run, epoch + 1, seconds, begun_wall, begun)
        rows.append(row | {"steps_s": seconds, "input_wait_per_step_s": waited} | traffic.end())
    return Taken(rows, {})
