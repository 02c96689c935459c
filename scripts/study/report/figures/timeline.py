"""Data of timeline figures: power, phases and communication of runs on one time axis."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.compare import failed_runs
from study.core import validation
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.files import AnyPath
from study.core.wording import format_count
from study.experiment import programs
from study.experiment.definition import RunDefinition
from study.instruments import phases, queue_usage
from study.instruments.power.readings import MODELLED
from study.instruments.power.summary import select_power_series
from study.instruments.power.telemetry import Series
from study.instruments.timeline import PARTS
from study.records.power import note_modelled_power
from study.records.record import NO_MODE
from study.report.figures.description import Description, Labels, describe_filters, get_benchmark_title, is_drawn
from study.report.tables.kinds import select_runs

MOST_RUNS = 6
MOST_LANES = 4  # ranks; if there are more, only the first and the last to have its data
POINTS = 600  # along the time axis: what a page can show
NANO = 1e-9
SHOWN_PARTS = ("negotiation", "transfer")  # parts of an operation
ACTIVITY = {"wall_ns": WHOLE, "bin_s": FINITE} | {
    f"{operation}_{part}": FINITE for operation in PARTS for part in SHOWN_PARTS
}

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Lane:
    """One rank's phases: (phase, begin, end), seconds since the launch."""

    label: str
    spans: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Line:
    """A quantity over time (s since the launch), of all devices of one kind or of all ranks.

    Arrays with the mean, the lowest and the highest value.
    """

    label: str
    seconds: Values
    mean: Values
    low: Values
    high: Values


@dataclass(frozen=True)
class RunOverTime:
    """One run. reason: why it has no lines.

    communication: {what: busy share from each of ``seconds`` to the next}.
    """

    title: str
    lanes: tuple[Lane, ...]
    lines: tuple[Line, ...]
    reason: str | None
    seconds: Values
    communication: dict[str, Values]
    end: float


@dataclass(frozen=True)
class TimelineData:
    """Everything that is drawn, and the texts. axis: of the lines' quantity, with its unit."""

    name: str
    title: str
    subtitle: str
    notes: tuple[str, ...]
    caption: str
    axis: str
    runs: tuple[RunOverTime, ...]


@dataclass(frozen=True)
class Launch:
    """Time of a run's launch: wall time (ns), and {host of a rank: its monotonic clock then (ns)}."""

    wall_ns: int
    monotonic_ns: dict[str, int]

    def compute_seconds(self, rows: pd.DataFrame, column: str = "monotonic_ns") -> Values:
        """Compute the seconds since the launch of rows with a host and a monotonic time (ns); NaN without ranks."""
        launched = rows["host"].map(self.monotonic_ns).to_numpy(dtype=float, na_value=np.nan)
        return (rows[column].to_numpy(dtype=float) - launched) * NANO


LinesReader = Callable[[pd.Series, Path, Launch, float], tuple[tuple[Line, ...], str]]


@dataclass(frozen=True)
class Quantity:
    """A quantity that is drawn above the phases of each run.

    Args:
        axis: its name with the unit.
        read: from (row of ``runs.csv``, the run's directory, its launch, its end in s) to the lines, and why there are
            none.
        notes: from the rows that are shown to what a reader needs to know.
    """

    axis: str
    read: LinesReader
    notes: Callable[[pd.DataFrame], list[str]] = lambda shown: []


def select_timeline(
    description: Description,
    runs: pd.DataFrame,
    study: str,
    folder: AnyPath,
    traced: bool = True,
    quantity: str = "power",
) -> TimelineData:
    """Select the runs that a figure over time draws, and read their files: its `TimelineData`.

    runs: the tidy table of runs. study: its name. folder: to which the table's column ``record`` is relative. traced:
    whether it shows traced runs, with their communication, or those that give timings. quantity: one of `QUANTITIES`.
    Raises `StudyError` if there is no such run.
    """
    kind = "traced runs" if traced else "runs"
    all_runs = select_runs(runs, partial(is_drawn, description, traced=traced))
    if all_runs.empty:
        raise StudyError(f"figure {description.name} needs {kind}{describe_filters(description)}; the study has none")
    successful = failed_runs.keep_proven(all_runs[all_runs["repeat"] == 1])
    order = ["gpus", "scaling", "straggler_loads", "loader"]
    successful = successful.sort_values(order, ascending=[True, True, True, False])
    drawn_quantity = QUANTITIES[quantity]
    rows = [row for _, row in successful[:MOST_RUNS].iterrows()]
    drawn = tuple(_make_run(row, Path(folder), description, drawn_quantity) for row in rows)
    subtitle = f"study {study}, machine {', '.join(all_runs['machine'].unique())}"
    notes = _write_notes(all_runs, successful, kind, drawn_quantity)
    if unclear := sum(bool(row["trace"]) and not run.communication for row, run in zip(rows, drawn, strict=True)):
        notes += (f"communication of {format_count(unclear, 'run')} is not shown: a clock was set while it was traced",)
    axis = drawn_quantity.axis
    return TimelineData(description.name, description.title, subtitle, notes, description.caption, axis, drawn)


def _write_notes(all_runs: pd.DataFrame, successful: pd.DataFrame, kind: str, quantity: Quantity) -> tuple[str, ...]:
    """Write the notes on runs that are not drawn, and on the hosts' clocks."""
    notes = []
    failed = (all_runs["status"] != "ok").sum()
    if failed:
        notes.append(f"{failed} {kind} failed and are not shown")
    if len(successful) > MOST_RUNS:
        notes.append(f"{len(successful) - MOST_RUNS} more {kind} are not shown")
    notes += quantity.notes(successful)
    on_several_nodes = successful[successful["nodes"] > 1]
    uncertainties_s = on_several_nodes["clock_uncertainty_s"].dropna()  # of a machine with ``hosts``
    if len(uncertainties_s) < len(on_several_nodes):
        notes.append("the nodes' clocks are taken as they are: how far they are apart was not measured")
    if len(uncertainties_s):
        known_to_s = uncertainties_s.max()
        notes.append(f"the hosts' clocks are corrected by offsets measured at the start, known to {known_to_s:.2g} s")
    return tuple(notes)


def _make_run(row: pd.Series, folder: Path, description: Description, quantity: Quantity) -> RunOverTime:
    """Read a run's files into what is drawn of it."""
    directory = (folder / row["record"]).parent
    edges = phases.read_edges(directory / "phases.jsonl")
    launch = _make_launch(row, validation.load_valid_json(directory / "outcome.json", "outcome"), edges)
    lanes = _make_lanes(edges, launch)
    end = max((end for lane in lanes for _, _, end in lane.spans), default=0)
    if end <= 0:
        raise StudyError(
            f"{directory / 'phases.jsonl'}: no phase has ended after the start of the run; delete {directory}"
        )
    lines, reason = quantity.read(row, directory, launch, end)
    communication: dict[str, Values] = {}
    bins = np.linspace(0, end, POINTS + 1)
    if row["trace"] and not phases.find_set_clock(edges):  # its events have the wall time of an unknown moment
        communication = _read_communication(directory / "activity.csv", _compute_timeline_zero_ns(edges, launch), bins)
    title, no_lines = _make_title(row, description.labels), None if lines else reason
    return RunOverTime(title, lanes, lines, no_lines, bins[:-1], communication, end)


def _make_launch(row: pd.Series, outcome: dict[str, Any], edges: list[dict[str, Any]]) -> Launch:
    """Find a run's launch by every host's clock. outcome: ``outcome.json``, without a monotonic time of a lost job."""
    monotonic_ns, wall_ns = outcome["started_monotonic_ns"], outcome["started_wall_ns"]
    started = None if monotonic_ns is None else {"host": row["host"], "monotonic_ns": monotonic_ns}
    return Launch(wall_ns, phases.compute_launch_ns(edges, wall_ns, started))


def _compute_timeline_zero_ns(edges: list[dict[str, Any]], launch: Launch) -> int:
    """Compute the launch (ns) by the wall clock of rank 0's host, which wrote the timeline."""
    host = next((edge["host"] for edge in edges if edge["rank"] == 0), None)
    return launch.wall_ns if host is None else phases.compute_zeros_ns(edges)[host] + launch.monotonic_ns[host]


def _make_title(row: pd.Series, labels: Labels) -> str:
    """Make a run's title from its benchmark, ranks, scaling and other keys."""
    loader = labels.get("loader", {}).get(row["loader"], row["loader"])
    uneven = f", last rank loads {1 + row['straggler_loads']} times" if row["straggler_loads"] else ""
    staging = "" if row["staging"] == "none" else f", {labels.get('staging', {}).get(row['staging'], row['staging'])}"
    memory_mode = "" if row["memory_mode"] == NO_MODE else f", memory mode {row['memory_mode']}"
    ranks = format_count(row["gpus"], "rank")
    if row.get("ensemble", 1) > 1:
        sharing = labels.get("input_sharing", {}).get(row["input_sharing"], row["input_sharing"])
        ranks = f"{row['ensemble']} members, {sharing}"
    parts = [
        get_benchmark_title(row["benchmark"], labels),
        ranks,
        f"{row['scaling']} scaling",
        *programs.list_given_values([loader]),
    ]
    return f"{', '.join(parts)}{memory_mode}{staging}{uneven}"


def _make_lanes(edges: Iterable[dict[str, Any]], launch: Launch) -> tuple[Lane, ...]:
    """Make the lanes: phases of each rank or, if there are many, of the first and the last to have loaded."""
    spans: dict[int, list[tuple[str, float, float]]] = {}
    begins: dict[tuple[int, str], float] = {}
    phase_edges = [edge for edge in edges if edge["phase"] in phases.PHASES]  # without parts of phases
    for edge in phases.sort_edges(phase_edges):
        key, second = (edge["rank"], edge["phase"]), (edge["monotonic_ns"] - launch.monotonic_ns[edge["host"]]) * NANO
        if edge["edge"] == "begin":
            begins[key] = second
        elif key in begins:
            spans.setdefault(edge["rank"], []).append((edge["phase"], begins.pop(key), second))
    if len(spans) <= MOST_LANES:
        host = {edge["rank"]: f" on {edge['host']}" for edge in phase_edges}
        several = len(set(host.values())) > 1
        return tuple(Lane(f"rank {rank}{host[rank] if several else ''}", tuple(spans[rank])) for rank in sorted(spans))
    load_ends = {rank: end for rank, rank_spans in spans.items() for phase, _, end in rank_spans if phase == "load"}
    first, last = min(load_ends, key=load_ends.__getitem__), max(load_ends, key=load_ends.__getitem__)
    return (
        Lane(f"rank {first}, first to load", tuple(spans[first])),
        Lane(f"rank {last}, last to load", tuple(spans[last])),
    )


def _write_power_notes(runs: pd.DataFrame) -> list[str]:
    """Write notes on modelled power, and on kinds of devices whose power is not drawn."""
    doubtful = sorted({kind for _, row in runs.iterrows() for kind in _list_doubtful_kinds(row)})
    notes = [f"power of {kind} is doubtful in some runs and not shown" for kind in doubtful]
    return [*note_modelled_power(runs["power_source"], "power", "is"), *notes]


def _list_doubtful_kinds(row: pd.Series) -> set[str]:
    """List the kinds of devices whose energy in this run is doubtful."""
    kinds = row.get("doubtful_energy")
    return set(kinds.split(", ")) if isinstance(kinds, str) else set()


def _read_power(row: pd.Series, directory: Path, launch: Launch, end: float) -> tuple[tuple[Line, ...], str]:
    """Read the power of each kind of device that is not doubtful, measured and modelled apart; see `Quantity.read`.

    If a device has only an energy counter, its differences over time.
    """
    reason, grid = f"no power: {row['power_reason']}", np.linspace(0, end, POINTS)
    if not (directory / "telemetry.csv").exists():
        return (), reason
    sampled: dict[str, list[Values]] = {}
    for device in select_power_series(directory, RunDefinition.read(directory / "run.yaml").machine):
        label = f"{device.kind}, modelled" if device.sensor == MODELLED else device.kind
        power = _interpolate_power(device, launch, grid)
        if device.kind not in _list_doubtful_kinds(row) and not np.isnan(power).all():
            sampled.setdefault(label, []).append(power)
    return tuple(_make_line(label, grid, np.array(powers)) for label, powers in sampled.items()), reason


def _make_line(label: str, grid: Values, sampled: Values) -> Line:
    """Make the line of the mean and range over the rows of ``sampled``, (devices, times), without masked values."""
    label += f" (mean and range of {len(sampled)})" if len(sampled) > 1 else ""
    of_all = (sampled.mean(axis=0), sampled.min(axis=0), sampled.max(axis=0))
    return Line(label, grid, *(np.ma.filled(values, np.nan) for values in of_all))


def _interpolate_power(device: Series, launch: Launch, grid: Values) -> Values:
    """Interpolate the power of a device at each time of ``grid``; NaN before its first reading and after its last."""
    seconds, power = device.select_readings(device.power_w)
    if not len(seconds):
        read_at, joules = device.select_readings(device.energy_j)
        seconds, power = read_at[1:], np.diff(joules) / np.diff(read_at)
    launched = launch.monotonic_ns.get(device.host)
    if launched is None or len(seconds) < 2:
        return np.full(len(grid), np.nan)
    return np.interp(grid, seconds - launched * NANO, power, left=np.nan, right=np.nan)


def _make_usage_reader(column: str, label: str) -> LinesReader:
    """Make the reader of a column of an ensemble's ``usage.csv``; see `Quantity.read`."""

    def read(row: pd.Series, directory: Path, launch: Launch, end: float) -> tuple[tuple[Line, ...], str]:
        path = directory / queue_usage.FILE
        if not path.exists():
            return (), f"no {queue_usage.FILE}: the run is no ensemble"
        grid = np.linspace(0, end, POINTS)
        by_rank = queue_usage.read(path).groupby("rank")
        sampled = np.array([_look_up_values(rows, column, launch, grid) for _, rows in by_rank])
        masked = np.ma.masked_invalid(sampled)  # ranks do not all take blocks all the time
        return (
            _make_line(label, grid, masked),
        ) if masked.count() else (), f"no rank took a block of samples ({queue_usage.FILE})"

    return read


def _look_up_values(rows: pd.DataFrame, column: str, launch: Launch, grid: Values) -> Values:
    """Look up a rank's value at each time of ``grid``: that of the row whose interval has it; NaN without one."""
    rows = rows.sort_values("begin_monotonic_ns")
    begins = launch.compute_seconds(rows, "begin_monotonic_ns")
    places = np.searchsorted(begins, grid, side="right") - 1
    is_within = (places >= 0) & (grid < (begins + rows["seconds"].to_numpy(dtype=float))[places])
    return np.where(is_within, rows[column].to_numpy(dtype=float)[places], np.nan)


# What a figure over time may draw, by the names that are kinds of figures too.
QUANTITIES = {
    "power": Quantity("power (W)", _read_power, _write_power_notes),
    "queue_fill": Quantity("queue fill", _make_usage_reader("queue_fill", "queue of a rank")),
    "cores_used": Quantity("cores used", _make_usage_reader("cores_used", "cores of a rank")),
}


def _read_communication(path: Path, started_wall_ns: int, edges: Values) -> dict[str, Values]:
    """Read {operation and part: busy share in each bin} of communication. edges: of the bins, s since the launch."""
    activity = read_csv(path, ACTIVITY)
    width = edges[1]
    seconds = (activity["wall_ns"].to_numpy() - started_wall_ns) * NANO
    bins = activity["bin_s"].iloc[0] if len(activity) else width
    shares = {}
    for operation, parts in PARTS.items():
        for part in (part for part in parts if part in SHOWN_PARTS):
            busy = activity[f"{operation}_{part}"].to_numpy() * bins
            shares[f"{operation} {part}"] = np.minimum(_spread_busy_time(seconds, busy, bins, edges) / width, 1)
    return shares


def _spread_busy_time(middles: Values, busy: Values, bins: float, edges: Values) -> Values:
    """Distribute busy seconds of bins (middles and width) over the bins between ``edges`` by their overlap."""
    total = np.zeros(len(edges) - 1)
    for middle, seconds in zip(middles, busy, strict=True):
        if seconds:
            overlap = np.minimum(edges[1:], middle + bins / 2) - np.maximum(edges[:-1], middle - bins / 2)
            total += seconds * np.clip(overlap, 0, None) / bins
    return total
