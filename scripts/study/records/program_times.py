"""Whether the numbers of a program contradict each other, its benchmark's file, or the time that it ran."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from study.core import fields

EPOCH, RATE, STEP = "time_per_epoch_s", "throughput_samples_per_s", "time_per_step_s"
LONGER = 1.25  # training that takes so many times as long as the whole program is none
APART = 3.0  # ratio of two numbers' times, which an epoch's validation does not make
SHORT_SHARE, LEAST_REST_S = 0.01, 60.0  # of the program's time; training of less is doubted if the rest is so long
NO_TIME_S = 1e-3  # an epoch of at most this is none
# Columns that a contradiction empties.
COLUMNS = [str(each.column) for each in fields.find_section("training").fields
           if each.column and each.name != "learning_rate_used"] + ["samples_per_j"]  # fmt: skip


def explain_contradiction(record: Mapping[str, Any], program: Mapping[str, Any]) -> str | None:
    """Which numbers of a program contradict each other; None if none do. program: the entry of ``metrics.json``."""
    ran_s = record["phases"].get("program", {}).get("slowest_s") or record["runtime_s"]
    times = dict(_list_training_times(record, program))
    if program["has_epochs"]:
        return _explain_epochs(record, times, ran_s)
    for (name, time_s), (other, other_s) in itertools.permutations(times.items(), 2):
        most = LONGER if other == EPOCH else APART
        if time_s > most * other_s:
            return f"{name} makes the training {time_s:.3g} s long, and {other} {other_s:.3g} s"
    return next((why for name, time_s in times.items() if (why := _explain_time(name, time_s, ran_s))), None)


def _list_training_times(record: Mapping[str, Any], program: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(Metric, seconds of all epochs by it) of the metrics of training that the run has."""
    training, workload = record["training"], record["workload"]
    epochs = program["epochs"] or record["derived"]["epochs_per_rank"]
    samples = (workload["samples_per_rank"] or 0) * record["parameters"]["gpus"]
    if training[EPOCH]:
        yield EPOCH, training[EPOCH] * epochs
    if training[RATE] and samples:
        yield RATE, samples * epochs / training[RATE]
    if training[STEP] and program["steps_per_epoch"]:
        yield STEP, training[STEP] * program["steps_per_epoch"] * epochs


def _explain_time(name: str, time_s: float, ran_s: float) -> str | None:
    """Why a time of the whole training cannot be, by the time that the program ran."""
    if time_s > LONGER * ran_s:
        return f"{name} makes the training {time_s:.3g} s long, and the program ran for {ran_s:.3g} s"
    if time_s < SHORT_SHARE * ran_s and ran_s - time_s > LEAST_REST_S:
        return f"{name} makes the training {time_s:.3g} s long, of {ran_s:.3g} s that the program ran"
    return None


def _explain_epochs(record: Mapping[str, Any], times: Mapping[str, float], ran_s: float) -> str | None:
    """Why the epochs that a program reported cannot be."""
    training = record["training"]
    shortest = min(value for value in (training[EPOCH], training["time_per_epoch_steady_s"], training["epoch_steps_s"])
                   if value is not None)  # fmt: skip
    if shortest <= NO_TIME_S:
        return f"an epoch took {max(shortest, 0.0):.3g} s by its events"
    return _explain_time(EPOCH, times.get(EPOCH, 0.0), ran_s)
