"""The data of a figure over time: power, phases and communication of traced runs, on one clock. Nothing here draws."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.instruments import phases
from study.instruments.power.readings import MODELLED
from study.instruments.timeline.summary import PARTS
from study.report.figures.description import needs

MOST_RUNS = 6
MOST_LANES = 4  # ranks; of more, only the first and the last to have its data
POINTS = 600  # along the time axis: what a page can show
NANO = 1e-9


@dataclass(frozen=True)
class Lane:
    """One rank's phases: (phase, begin, end), seconds since the launch."""

    label: str
    spans: tuple


@dataclass(frozen=True)
class PowerLine:
    """Power (W) over time (s since the launch) of all devices of one kind: arrays with mean, lowest and highest."""

    label: str
    seconds: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class RunOverTime:
    """One run. communication: {what: busy share from each of ``seconds`` to the next}."""

    title: str
    lanes: tuple
    power: tuple
    power_reason: str | None
    seconds: np.ndarray
    communication: dict
    end: float


@dataclass(frozen=True)
class TimelineData:
    """All that is drawn, and the text that goes with it."""

    name: str
    title: str
    subtitle: str
    notes: tuple
    caption: str
    runs: tuple


def select(description, runs, study, folder):
    """The `TimelineData` of a figure.

    runs: the tidy table of runs; study: its name; folder: what the table's column ``record`` is relative to. Raises
    `StudyError` where there is no traced run that came to its end.
    """
    chosen = runs[runs["trace"].astype(bool)] if len(runs) else runs
    for column, values in description.runs.items():
        chosen = chosen[chosen[column].isin(values)] if len(chosen) else chosen
    if chosen.empty:
        raise StudyError(f"figure {description.name} needs {needs(description)}; the study has none")
    shown = chosen[(chosen["status"] == "ok") & (chosen["repeat"] == 1)]
    shown = shown.sort_values(["gpus", "scaling", "extra_loads", "loader"], ascending=[True, True, True, False])
    drawn = tuple(_run(row, Path(folder), description) for _, row in shown[:MOST_RUNS].iterrows())
    subtitle = f"study {study}, machine {', '.join(chosen['machine'].unique())}"
    return TimelineData(
        description.name, description.title, subtitle, _notes(chosen, shown), description.caption, drawn
    )


def _notes(chosen, shown):
    notes = []
    failed = (chosen["status"] != "ok").sum()
    if failed:
        notes.append(f"{failed} traced runs failed and are not shown")
    if len(shown) > MOST_RUNS:
        notes.append(f"{len(shown) - MOST_RUNS} more traced runs are not shown")
    if shown["power_source"].eq(MODELLED).any():
        notes.append("power is modelled from CPU utilisation (power_model), not measured")
    if (shown["nodes"] > 1).any():
        notes.append("the nodes' clocks are taken as they are")
    return tuple(notes)


def _run(row, folder, description):
    directory = (folder / row["record"]).parent
    started = json.loads((directory / "outcome.json").read_text(encoding="utf-8"))["started_wall_ns"]
    lanes = _lanes(phases.read(directory / "phases.jsonl"), started)
    end = max(end for lane in lanes for _, _, end in lane.spans)
    power = _power(directory / "telemetry.csv", started, end)
    seconds, communication = _communication(directory / "activity.csv", started, end)
    reason = None if power else row["power_reason"]
    return RunOverTime(_title(row, description.labels), lanes, power, reason, seconds, communication, end)


def _title(row, labels):
    loader = labels.get("loader", {}).get(row["loader"], row["loader"])
    uneven = f", last rank loads {1 + row['extra_loads']} times" if row["extra_loads"] else ""
    way = "" if row["staging"] == "none" else f", {labels.get('staging', {}).get(row['staging'], row['staging'])}"
    return f"{row['benchmark'].upper()}, {row['gpus']} ranks, {row['scaling']} scaling, {loader}{way}{uneven}"


def _lanes(edges, started):
    """The phases of each rank or, of many, of the first and the last one to have loaded."""
    spans, begun = {}, {}
    whole = [edge for edge in edges if edge["phase"] in phases.PHASES]  # without what is a part of one
    for edge in sorted(whole, key=lambda edge: edge["wall_ns"]):
        key, at = (edge["rank"], edge["phase"]), (edge["wall_ns"] - started) * NANO
        if edge["edge"] == "begin":
            begun[key] = at
        elif key in begun:
            spans.setdefault(edge["rank"], []).append((edge["phase"], begun.pop(key), at))
    if len(spans) <= MOST_LANES:
        return tuple(Lane(f"rank {rank}", tuple(spans[rank])) for rank in sorted(spans))
    loaded = {rank: end for rank, found in spans.items() for phase, _, end in found if phase == "load"}
    first, last = min(loaded, key=loaded.get), max(loaded, key=loaded.get)
    return (
        Lane(f"rank {first}, first to load", tuple(spans[first])),
        Lane(f"rank {last}, last to load", tuple(spans[last])),
    )


def _power(path, started, end):
    """A `PowerLine` for each kind of device; where a device has only an energy counter, its differences by time."""
    if not path.exists():
        return ()
    frame = pd.read_csv(path, dtype={"host": str, "device": str})
    lines = []
    for kind, rows in frame.groupby("kind", sort=False):
        grid = np.linspace(0, end, POINTS)
        sampled = np.array([_device_power(device, started, grid) for _, device in rows.groupby(["host", "device"])])
        sampled = sampled[~np.isnan(sampled).all(axis=1)]
        if len(sampled):
            label = f"{kind}, modelled" if rows["sensor"].eq(MODELLED).all() else kind
            label += f" (mean and range of {len(sampled)})" if len(sampled) > 1 else ""
            lines.append(PowerLine(label, grid, sampled.mean(axis=0), sampled.min(axis=0), sampled.max(axis=0)))
    return tuple(lines)


def _device_power(rows, started, grid):
    """Power of one device at each time of ``grid``; NaN before its first reading and after its last."""
    seconds = (rows["wall_ns"].to_numpy() - started) * NANO
    power = rows["power_w"].to_numpy(dtype=float)
    if np.isnan(power).all():
        power = np.diff(rows["energy_j"].to_numpy(dtype=float), prepend=np.nan) / np.diff(seconds, prepend=np.nan)
    known = ~np.isnan(power)
    if known.sum() < 2:
        return np.full(len(grid), np.nan)
    return np.interp(grid, seconds[known], power[known], left=np.nan, right=np.nan)


def _communication(path, started, end):
    """(begins of bins, {what: busy share}), as many bins as a page can show."""
    activity = pd.read_csv(path)
    edges = np.linspace(0, end, POINTS + 1)
    width = edges[1]
    seconds = (activity["wall_ns"].to_numpy() - started) * NANO
    bins = activity["bin_s"].iloc[0] if len(activity) else width
    shares = {}
    for operation, parts in PARTS.items():
        for part in (part for part in parts if part in ("negotiation", "transfer")):
            busy = activity[f"{operation}_{part}"].to_numpy() * bins
            shares[f"{operation} {part}"] = np.minimum(_spread(seconds, busy, bins, edges) / width, 1)
    return edges[:-1], shares


def _spread(middles, busy, bins, edges):
    """Busy seconds of bins (their middles and width) shared out among the bins between ``edges`` by their overlap."""
    total = np.zeros(len(edges) - 1)
    for middle, seconds in zip(middles, busy, strict=True):
        if seconds:
            overlap = np.minimum(edges[1:], middle + bins / 2) - np.maximum(edges[:-1], middle - bins / 2)
            total += seconds * np.clip(overlap, 0, None) / bins
    return total
