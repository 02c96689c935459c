"""A run's timeline, with the epochs of its history."""

from pathlib import Path

import pandas as pd

from study.core.files import AnyPath
from study.instruments.timeline.summary import Communication, summarize

FILE = "timeline.json.gz"


def communication_of(folder: AnyPath) -> Communication:
    """The `study.instruments.timeline.summary.Communication` of a traced run's directory, complete or not."""
    folder = Path(folder)
    history = folder / "history.csv"
    edges = _epoch_edges_ns(pd.read_csv(history)) if history.exists() else []
    return summarize(folder / FILE, edges)


def _epoch_edges_ns(history: pd.DataFrame) -> list[int]:
    """Wall time (ns) at which each epoch began, and at which the last one ended."""
    begins = history["begin_wall_ns"].tolist()
    return [*begins, begins[-1] + int(history["time_s"].iloc[-1] * 1e9)]
