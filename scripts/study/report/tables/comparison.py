"""Ratios of two sets of results at each point, with intervals; made by `study compare`, not by studies."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import failed_runs, likeness
from study.compare.result_sets import compare_results
from study.core.wording import format_count
from study.records.names import join_records
from study.report.tables.declared import load_verb_table, make_verb_table
from study.report.tables.layout import Table
from study.report.tables.summary import POINT, notes, steady

QUANTITIES = ("runtime_s", "load_s", "train_s", "time_per_epoch_steady_s", "time_per_step_s")
KEYS = [name for name in POINT if name not in ("machine", "memory_mode")]  # the mode is a property of the machine


def compare_machines(runs: pd.DataFrame, base: str) -> Table:
    """The ratio of each ``machine`` to ``base`` at each point that both have. runs: the tidy table of all of them."""
    rows: list[dict[str, Any]] = []
    twice = {record for records in likeness.find_copied_runs(runs) for record in records}
    runs = steady(runs[~runs["record"].isin(twice)] if twice else runs)
    for point, group in kinds.select_runs(runs, kinds.gives_timings).groupby(KEYS, sort=False, dropna=False):
        arms = dict(list(group.groupby("machine", sort=False)))
        for name, other in arms.items():
            if name != base and base in arms:
                for quantity in QUANTITIES:
                    key = {"machine": name, **dict(zip(KEYS, point, strict=True)), "quantity": quantity}
                    compared = _ratio(other, arms[base], quantity)
                    rows += [key | compared] if compared else []
    columns = load_verb_table("comparison")["columns"]
    frame = pd.DataFrame(rows, columns=None if rows else [*columns, "records"])
    identity = ("machine", *KEYS, "quantity")
    copies = (
        [f"{format_count(len(twice), 'record')} left out: copies of the same runs are in both results"] if twice else []
    )
    unproven = [f"left out: {why}"] if (why := failed_runs.describe_unproven(runs)) else []
    remarks = [*copies, *unproven, *notes(frame, share_runs=True)]
    return make_verb_table("comparison", frame, remarks, identity, base=base)


def _ratio(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> dict[str, Any] | None:
    """The columns of a ratio; None if one of the two has no value."""
    failed = [int((runs["status"] != "ok").sum()) for runs in (one, other)]
    ratio, (one, other) = compare_results(one, other, quantity)
    if one.empty or other.empty:
        return None
    both = pd.concat([one, other])
    return {
        "repeats": len(one),
        "base_repeats": len(other),
        **dict(zip(("ratio", "ratio_low", "ratio_high"), ratio.numbers, strict=True)),
        "how": ratio.pairing,
        "differs": ", ".join(likeness.list_differences(one, other)) or None,
        "why_not": ratio.why_not,
        "blocks_unlike": ratio.unlike,
        "blocks_alike": ratio.alike,
        "repeats_failed": failed[0],
        "base_failed": failed[1],
        "oversubscribed": bool(both["oversubscribed"].any()),
        "code_is_current": bool(both["code_is_current"].all()),
        "records": join_records(both["record"]),
    }
