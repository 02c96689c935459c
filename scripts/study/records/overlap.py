"""Runs that were on one host at the same time: they took cores, bandwidth and power from each other."""

from typing import Any

import numpy as np
import pandas as pd

MONOTONIC = ["started_monotonic_ns", "boot_id"]  # columns of a time by a host's monotonic clock
# The columns that `mark_overlapping_runs` reads.
OF_TIMES = ("overlapped", "hosts", "hosts_reason", "started_wall_ns", "started_monotonic_ns", "boot_id", "runtime_s")
OVERLAPPED = "another run was on its host at the same time"
AT_ONCE = "runs that were on one host at the same time"
SLEW = 1e-3  # of a duration: by how much a wall clock that is adjusted slowly (at most 500 ppm, adjtime) may be off
FIRST_TIME_NS = 10**6  # starts below are no times of a clock but places in an order, as of tables made by hand
_SAME = frozenset([""])  # the host of runs in tables that tell none, such as those made by hand


def mark_overlapping_runs(runs: pd.DataFrame) -> pd.Series:
    """Whether another of the runs was on a host of a run's ranks at the same time.

    Runs of a table that tells no hosts are on the same one. A run whose hosts are not known (``hosts_reason``) is not
    known to be beside another. The column ``overlapped`` has what is known of runs that are not among these. Runs that
    began in the very same nanosecond are not two runs.
    """
    overlaps = runs["overlapped"].eq(True) if "overlapped" in runs else pd.Series(False, index=runs.index)
    if len(runs) < 2 or "started_wall_ns" not in runs:
        return overlaps
    at_once = overlaps.to_numpy(copy=True)
    hosts = _list_hosts_of_runs(runs)
    for host in frozenset().union(*hosts):
        places = [place for place, each in enumerate(hosts) if host in each]
        begins, ends = _compute_spans(runs if len(places) == len(runs) else runs.iloc[places])
        last, until, since = 0, float("-inf"), None
        for number in np.argsort(begins, kind="stable"):
            place, begin, end = places[number], begins[number], ends[number]
            if begin < until and begin != since:
                at_once[[place, last]] = True
            if end > until:
                last, until, since = place, end, begin
    return pd.Series(at_once, index=runs.index)


def compute_run_spans(runs: pd.DataFrame) -> pd.DataFrame:
    """``begin`` and ``end`` of each run, in ns, both by one clock.

    By the monotonic clock where all runs were started on one host since it was booted, else by the wall clock. A run
    whose duration is unknown ends when it begins.
    """
    begin, end = _compute_spans(runs)
    return pd.DataFrame({"begin": begin, "end": end}, index=runs.index)


def _compute_spans(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The columns of `compute_run_spans`, as a report asks for them for each block of each row of its tables."""
    begin = pd.to_numeric(runs["started_monotonic_ns" if has_one_monotonic_clock(runs) else "started_wall_ns"])
    if "runtime_s" not in runs or not begin.max() >= FIRST_TIME_NS:
        return begin.to_numpy(), begin.to_numpy()
    lasted = np.fmax(pd.to_numeric(runs["runtime_s"]).to_numpy(float, na_value=np.nan), 0)  # 0 where it is unknown
    return begin.to_numpy(), begin.to_numpy() + (lasted * (1 - SLEW) * 1e9).astype("int64")


def has_one_monotonic_clock(runs: pd.DataFrame) -> bool:
    """Whether the order of runs is known by one monotonic clock, which nobody sets."""
    has_readings = set(MONOTONIC) <= set(runs) and bool(runs[MONOTONIC].notna().all(axis=None))
    return has_readings and runs["boot_id"].nunique() == 1


def _list_hosts_of_runs(runs: pd.DataFrame) -> list[frozenset[str]]:
    """The hosts of each run: of one whose hosts are not known, none; of one without the columns, all the same one."""
    if "hosts" not in runs:
        return [_SAME] * len(runs)
    whys = runs["hosts_reason"].notna() if "hosts_reason" in runs else [False] * len(runs)
    return [parse_hosts(text) or (frozenset() if why else _SAME) for text, why in zip(runs["hosts"], whys, strict=True)]


def parse_hosts(text: Any) -> frozenset[str]:
    """The hosts in a value of the column ``hosts``; none of an empty value."""
    return frozenset(text.split()) if isinstance(text, str) else frozenset()
