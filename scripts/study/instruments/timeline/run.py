"""A run's timeline, with the epochs of its history."""

from pathlib import Path

import pandas as pd

from study.core import checked
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.files import AnyPath
from study.instruments import phases
from study.instruments.timeline.summary import Communication, summarize

FILE = "timeline.json.gz"
EPOCHS = {"begin_wall_ns": WHOLE, "time_s": FINITE}  # columns of history.csv


def communication_of(folder: AnyPath) -> Communication:
    """The `study.instruments.timeline.summary.Communication` of a traced run's directory, complete or not.

    It has no times by epoch if a host's clock was set during the run: epochs begin by that clock, and events do not.
    The activity's wall times are those of the launching host's clock, as in the run's other files.
    """
    folder = Path(folder)
    history = folder / "history.csv"
    edges = _epoch_edges_ns(read_csv(history, EPOCHS)) if history.exists() and not _was_set(folder) else []
    found = summarize(folder / FILE, edges)
    found.activity["wall_ns"] -= _first_clock_offset_ns(folder)
    return found


def _was_set(folder: Path) -> bool:
    log = folder / "phases.jsonl"
    return log.exists() and phases.set_clock(phases.read(log)) is not None


def _first_clock_offset_ns(folder: Path) -> int:
    """By how much the clock of rank 0's host, which wrote the timeline, is ahead of the launching host's."""
    hosts = checked.load_json(folder / "provenance.json", "provenance").get("hosts", [])
    return round(hosts[0]["clock_offset_s"] * 1e9) if hosts else 0


def _epoch_edges_ns(history: pd.DataFrame) -> list[int]:
    """Wall time (ns) at which each epoch began, and at which the last one ended."""
    begins = history["begin_wall_ns"].tolist()
    if not begins:
        return []
    return [*begins, begins[-1] + int(history["time_s"].iloc[-1] * 1e9)]
