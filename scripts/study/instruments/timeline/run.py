"""A run's timeline, with the epochs of its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from study.core import checked
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.files import AnyPath
from study.core.lazy import pandas as pd
from study.instruments import phases
from study.instruments.timeline.summary import Communication, summarize

FILE = "timeline.json.gz"
EPOCHS = {"begin_monotonic_ns": WHOLE, "time_s": FINITE}  # columns of history.csv


def communication_of(folder: AnyPath) -> Communication:
    """The `study.instruments.timeline.summary.Communication` of a traced run's directory, complete or not.

    It has no times by epoch if a host's clock was set during the run: epochs begin by that clock, and events do not.
    The activity's wall times are those of the launching host's clock, as in the run's other files.
    """
    folder = Path(folder)
    history = folder / "history.csv"
    log = folder / "phases.jsonl"
    of_ranks = phases.read(log) if log.exists() else []
    edges = []
    if history.exists() and phases.set_clock(of_ranks) is None:
        edges = _epoch_edges_ns(read_csv(history, EPOCHS), _first_zero_ns(folder, of_ranks))
    found = summarize(folder / FILE, edges)
    found.activity["wall_ns"] -= _first_clock_offset_ns(folder)
    return found


def _first_clock_offset_ns(folder: Path) -> int:
    """By how much the clock of rank 0's host, which wrote the timeline, is ahead of the launching host's."""
    hosts = checked.load_json(folder / "provenance.json", "provenance").get("hosts", [])
    return round(hosts[0]["clock_offset_s"] * 1e9) if hosts else 0


def _first_zero_ns(folder: Path, edges: list[dict[str, Any]]) -> int | None:
    """When the monotonic clock of rank 0's host was 0, by that host's wall clock; None without an edge of rank 0."""
    host = next((edge["host"] for edge in edges if edge["rank"] == 0), None)
    return None if host is None else phases.zeros_ns(edges)[host] + _first_clock_offset_ns(folder)


def _epoch_edges_ns(history: pd.DataFrame, zero_ns: int | None) -> list[int]:
    """Wall time (ns) at which each epoch began, and at which the last one ended, as events of the timeline have it.

    The timeline has the wall time of its begin and counts by a monotonic clock from there, so epochs are told likewise.
    zero_ns: when that clock was 0; without it, nothing is known of epochs.
    """
    if zero_ns is None or history.empty:
        return []
    begins = (history["begin_monotonic_ns"] + zero_ns).tolist()
    return [*begins, begins[-1] + int(history["time_s"].iloc[-1] * 1e9)]
