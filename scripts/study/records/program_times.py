"""Whether the numbers of a program contradict each other, its benchmark's file, or the time that it ran."""

from __future__ import annotations

import collections
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from study.core import fields
from study.core.wording import format_count
from study.experiment import schemas
from study.experiment.study import compute_work_growth

EPOCH, RATE, STEP = "time_per_epoch_s", "throughput_samples_per_s", "time_per_step_s"
LONGER = 1.25  # training that takes so many times as long as the whole program is none
APART = 3.0  # ratio of two numbers' times, which an epoch's validation does not make
SHORT_SHARE, LEAST_REST_S = 0.01, 60.0  # of the program's time; training of less is doubted if the rest is so long
NO_TIME_S = 1e-3  # an epoch of at most this is none
MOST_GAIN = 1.15  # a speedup of more than so many times the growth of the ranks is doubted
FLAT, FASTER = 1.1, 1.5  # a throughput that grows less than this, in a program that gets so many times as fast
COMPARED = (RATE, "program_s", "batch_size_per_rank")  # columns of runs on different numbers of ranks
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


def explain_growth(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """{place of a run: why its throughput contradicts that on fewer ranks}, of the programs among a study's runs.

    rows: of the tidy table. Each run is compared with the median on the smallest number of ranks of its series.
    """
    series = schemas.list_series_columns()
    places = collections.defaultdict[tuple[Any, ...], list[int]](list)
    for place, row in enumerate(rows):
        if _has_rate(row):
            places[tuple(row.get(name) for name in series)].append(place)
    reasons = {}
    for alike in places.values():
        fewest = min(rows[place]["gpus"] for place in alike)
        smallest = [rows[place] for place in alike if rows[place]["gpus"] == fewest]
        base = {name: statistics.median(row[name] for row in smallest) for name in COMPARED} | {"gpus": fewest}
        for place in alike:
            if rows[place]["gpus"] > fewest and (why := _explain_growth(base, rows[place])):
                reasons[place] = why
    return reasons


def _has_rate(row: Mapping[str, Any]) -> bool:
    """True for the run of a program with a throughput that is not in doubt already."""
    return bool(row["status"] == "ok" and not row["unproven"] and row[RATE] and row["program_s"])


def _explain_growth(base: Mapping[str, Any], run: Mapping[str, Any]) -> str | None:
    """Why a run's throughput contradicts ``base``, that on the fewest ranks; None if it does not."""
    ranks = run["gpus"] / base["gpus"]
    growth = run[RATE] / base[RATE]
    speedup = base["program_s"] / run["program_s"] * compute_work_growth(run["scaling"], run["sharding"], ranks)
    words = f"{RATE} is {growth:.2f} times that on {format_count(base['gpus'], 'rank')}"
    if growth > MOST_GAIN * ranks and run["batch_size_per_rank"] <= base["batch_size_per_rank"]:
        return f"{words}, more than {ranks:.3g} times the ranks can make it"
    if growth < FLAT and FASTER < speedup <= MOST_GAIN * ranks:
        return f"{words}, but the program gets the work done {speedup:.3g} times as fast: it may be of one rank only"
    return None
