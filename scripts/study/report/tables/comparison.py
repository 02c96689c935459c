"""Ratios of two sets of results at each point, with intervals; made by `study compare`, not by studies."""

import math
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import estimates, failed_runs, likeness
from study.core.statistics import ERROR_PER_SIDE, log_sample, ratio_interval
from study.core.wording import alike_blocks, counted
from study.records import overlap
from study.records.names import join_records
from study.report.tables.layout import Table
from study.report.tables.summary import POINT, notes, steady

QUANTITIES = ("runtime_s", "load_s", "train_s", "time_per_epoch_steady_s", "time_per_step_s")
KEYS = [name for name in POINT if name not in ("machine", "memory_mode")]  # the mode is a property of the machine
CALIBRATED = "calibrated"


def comparison(runs: pd.DataFrame, base: str) -> Table:
    """The ratio of each ``machine`` to ``base`` at each point that both have. runs: the tidy table of all of them."""
    rows: list[dict[str, Any]] = []
    twice = {record for records in likeness.find_copied_runs(runs) for record in records}
    runs = steady(runs[~runs["record"].isin(twice)] if twice else runs)
    for point, group in kinds.selected(runs, kinds.gives_timings).groupby(KEYS, sort=False, dropna=False):
        arms = dict(list(group.groupby("machine", sort=False)))
        for name, other in arms.items():
            if name != base and base in arms:
                for quantity in QUANTITIES:
                    key = {"machine": name, **dict(zip(KEYS, point, strict=True)), "quantity": quantity}
                    found = _ratio(other, arms[base], quantity)
                    rows += [key | found] if found else []
    shown = ["machine", "benchmark", "scaling", "loader", "gpus", "quantity", "repeats", "base_repeats", "ratio",
             "ratio_low", "ratio_high", "how", "differs", "why_not", "repeats_failed", "base_failed",
             "oversubscribed"]  # fmt: skip
    caption = (
        f"Each result divided by that of {base}: ratio of geometric means and its 95 % interval. There is no ratio of "
        "runs that are no repeats of each other, or of which some read their files from storage and others from the "
        "page cache (why_not), and no interval where the faster one failed more often. "
        "time_per_step_s: of the epochs after the first, so runs with one epoch have none. "
        "calibrated: both were made on one host, and each run is divided by the calibration timed beside it (Welch's "
        "interval). paired: within blocks that ran interleaved. unpaired: neither of these, so the ratio includes "
        "the drift of the machine and has no interval. differs: in what the two differ besides the machine or the "
        "label."
    )
    frame = pd.DataFrame(rows, columns=None if rows else [*shown, "records"])
    identity = ("machine", *KEYS, "quantity")
    told = [f"{counted(len(twice), 'record')} left out: copies of the same runs are in both results"] if twice else []
    optional = ("differs", "why_not", "repeats_failed", "base_failed", "oversubscribed")
    remarks = [*told, *notes(frame, share_runs=True)]
    return Table("comparison", caption, frame, shown, optional, remarks, identity)


def _ratio(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> dict[str, Any] | None:
    """The columns of a ratio; None if one of the two has no value."""
    arms, why_not = {"it": one, "the base": other}, None
    failed = [int((each["status"] != "ok").sum()) for each in arms.values()]
    one, other = (each[(each["status"] == "ok") & (each[quantity] > 0)] for each in (one, other))
    if one.empty or other.empty:
        return None
    if cold := likeness.find_blocks_read_unlike([one, other], quantity):
        used = [each[~each["block"].isin(cold)] for each in (one, other)]
        if any(each.empty for each in used):
            why_not = likeness.PAGE_CACHE
        else:
            one, other = used
    both = pd.concat([one, other])
    compare = _calibrated if _are_calibrated(both) else _blocks
    how, numbers, alike = compare(one, other, quantity)
    if why_not:
        numbers = (math.nan,) * 3
    elif mixed := likeness.describe_difference(one) or likeness.describe_difference(other):
        why_not, numbers = mixed, (math.nan,) * 3
    elif overlap.mark_overlapping_runs(both).any():
        why_not, numbers = overlap.AT_ONCE, (math.nan,) * 3
    elif survivors := failed_runs.explain_survivors(arms, "it" if numbers[0] < 1 else "the base"):
        why_not, numbers = survivors, (numbers[0], math.nan, math.nan)
    return {
        "repeats": len(one),
        "base_repeats": len(other),
        **dict(zip(("ratio", "ratio_low", "ratio_high"), numbers, strict=True)),
        "how": how,
        "differs": ", ".join(likeness.list_differences(one, other)) or None,
        "why_not": why_not,
        "blocks_unlike": "; ".join(f"{block}: its block has {likeness.PAGE_CACHE}" for block in cold) or None,
        "blocks_alike": None if math.isnan(numbers[1]) else alike,
        "repeats_failed": failed[0],
        "base_failed": failed[1],
        "oversubscribed": bool(both["oversubscribed"].any()),
        "code_is_current": bool(both["code_is_current"].all()),
        "records": join_records(both["record"]),
    }


Compared = tuple[str, tuple[float, float, float], str | None]  # how, the ratio with its interval, column blocks_alike


def _calibrated(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> Compared:
    samples = [log_sample(each[quantity] / each["calibration_s"]) for each in (one, other)]
    counts = [
        (len(each), alike_blocks(len(each), sample.n)) for each, sample in zip((one, other), samples, strict=True)
    ]
    alike = "; ".join(f"{counted(number, 'block')} {told}" for number, told in counts if told)
    return CALIBRATED, ratio_interval(samples[0], samples[1], ERROR_PER_SIDE), alike or None


def _blocks(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> Compared:
    """From the blocks that both have; without one, the ratio of all repeats."""
    found = estimates.estimate_ratio(one, other, quantity, free=tuple(likeness.ALIKE) + ("steering",))
    if math.isnan(found.value):
        ratio = log_sample(one[quantity]).middle / log_sample(other[quantity]).middle
        return estimates.UNPAIRED, (ratio, math.nan, math.nan), None
    return found.pairing or estimates.UNPAIRED, found.numbers, found.alike


def _are_calibrated(runs: pd.DataFrame) -> bool:
    """Whether the runs of both have calibrations that can be compared: of one version, on one host, as their ranks.

    A host is known by its name and its hardware, since many are named localhost or node01.
    """
    if "calibration_version" not in runs or runs["calibration_s"].isna().any():
        return False
    told = ["calibration_version", *(name for name in ("host", "hosts", "hardware") if name in runs)]
    return bool(runs[told].notna().all(axis=None)) and bool((runs[told].nunique() == 1).all())
