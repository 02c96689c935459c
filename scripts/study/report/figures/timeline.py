"""Data of timeline figures: power, phases and communication of runs on one time axis, and other load beside them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.core import checked
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.files import AnyPath
from study.core.wording import counted
from study.experiment import programs
from study.experiment.definition import RunDefinition
from study.instruments import disturbance, phases, queue_usage
from study.instruments.power import telemetry
from study.instruments.power.readings import MODELLED
from study.instruments.power.summary import select_power_series
from study.instruments.power.telemetry import Series
from study.instruments.timeline import PARTS
from study.records.power import modelled_note
from study.records.record import NO_MODE
from study.report.figures.description import Description, Labels, benchmark_title, draws, filters
from study.report.tables.kinds import selected

MOST_RUNS = 6
MOST_LANES = 4  # ranks; if there are more, only the first and the last to have its data
POINTS = 600  # along the time axis: what a page can show
NANO = 1e-9
SHOWN = ("negotiation", "transfer")  # parts of an operation
ACTIVITY = {"wall_ns": WHOLE, "bin_s": FINITE} | {
    f"{operation}_{part}": FINITE for operation in PARTS for part in SHOWN
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

    communication: {what: busy share from each of ``seconds`` to the next}. background: likewise, of each host's cores
    what others used (`study.report.figures.timeline`).
    """

    title: str
    lanes: tuple[Lane, ...]
    lines: tuple[Line, ...]
    reason: str | None
    seconds: Values
    communication: dict[str, Values]
    background: dict[str, Values]
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
    """When a run was launched: wall time (ns), and {host: the host's monotonic clock then (ns)} of its ranks' hosts."""

    wall_ns: int
    monotonic_ns: dict[str, int]

    def seconds(self, rows: pd.DataFrame, column: str = "monotonic_ns") -> Values:
        """Seconds since the launch of rows with a ``host`` and a monotonic time; NaN on a host without ranks."""
        launched = rows["host"].map(self.monotonic_ns).to_numpy(dtype=float, na_value=np.nan)
        return (rows[column].to_numpy(dtype=float) - launched) * NANO


@dataclass(frozen=True)
class Quantity:
    """What a figure draws above the phases of each run.

    Args:
        axis: its name with the unit.
        read: from (row of ``runs.csv``, the run's directory, its launch, its end in s) to the lines, and why there are
            none.
        notes: from the rows that are shown to what a reader needs to know.
    """

    axis: str
    read: Callable[[pd.Series, Path, Launch, float], tuple[tuple[Line, ...], str]]
    notes: Callable[[pd.DataFrame], list[str]] = lambda shown: []


def select(
    description: Description,
    runs: pd.DataFrame,
    study: str,
    folder: AnyPath,
    traced: bool = True,
    quantity: str = "power",
) -> TimelineData:
    """The `TimelineData` of a figure.

    runs: the tidy table of runs. study: its name. folder: to which the table's column ``record`` is relative. traced:
    whether it shows traced runs, with their communication, or those that give timings. quantity: one of `QUANTITIES`.
    Raises `StudyError` if there is no such run.
    """
    kind = "traced runs" if traced else "runs"
    chosen = selected(runs, partial(draws, description, traced=traced))
    if chosen.empty:
        raise StudyError(f"figure {description.name} needs {kind}{filters(description)}; the study has none")
    shown = chosen[(chosen["status"] == "ok") & (chosen["repeat"] == 1)]
    shown = shown.sort_values(["gpus", "scaling", "straggler_loads", "loader"], ascending=[True, True, True, False])
    drawn_as = QUANTITIES[quantity]
    rows = [row for _, row in shown[:MOST_RUNS].iterrows()]
    drawn = tuple(_run(row, Path(folder), description, drawn_as) for row in rows)
    subtitle = f"study {study}, machine {', '.join(chosen['machine'].unique())}"
    notes = _notes(chosen, shown, kind, drawn_as)
    if unclear := sum(bool(row["trace"]) and not run.communication for row, run in zip(rows, drawn, strict=True)):
        notes += (f"communication of {counted(unclear, 'run')} is not shown: a clock was set while it was traced",)
    return TimelineData(description.name, description.title, subtitle, notes, description.caption, drawn_as.axis, drawn)


def _notes(chosen: pd.DataFrame, shown: pd.DataFrame, kind: str, quantity: Quantity) -> tuple[str, ...]:
    notes = []
    failed = (chosen["status"] != "ok").sum()
    if failed:
        notes.append(f"{failed} {kind} failed and are not shown")
    if len(shown) > MOST_RUNS:
        notes.append(f"{len(shown) - MOST_RUNS} more {kind} are not shown")
    notes += quantity.notes(shown)
    several = shown[shown["nodes"] > 1]
    known = several["clock_uncertainty_s"].dropna()  # of a machine with ``hosts``
    if len(known) < len(several):
        notes.append("the nodes' clocks are taken as they are: how far they are apart was not measured")
    if len(known):
        notes.append(f"the hosts' clocks are corrected by offsets measured at the start, known to {known.max():.2g} s")
    return tuple(notes)


def _run(row: pd.Series, folder: Path, description: Description, quantity: Quantity) -> RunOverTime:
    directory = (folder / row["record"]).parent
    edges = phases.read_edges(directory / "phases.jsonl")
    launch = _launch(row, checked.load_json(directory / "outcome.json", "outcome"), edges)
    lanes = _lanes(edges, launch)
    end = max((end for lane in lanes for _, _, end in lane.spans), default=0)
    if end <= 0:
        raise StudyError(
            f"{directory / 'phases.jsonl'}: no phase has ended after the start of the run; delete {directory}"
        )
    lines, reason = quantity.read(row, directory, launch, end)
    communication: dict[str, Values] = {}
    bins = np.linspace(0, end, POINTS + 1)
    if row["trace"] and not phases.find_set_clock(edges):  # its events have the wall time of an unknown moment
        communication = _communication(directory / "activity.csv", _zero_of_timeline(edges, launch), bins)
    background = compute_background_shares(directory, launch.seconds, bins[:-1])
    title, why = _title(row, description.labels), None if lines else reason
    return RunOverTime(title, lanes, lines, why, bins[:-1], communication, background, end)


def _launch(row: pd.Series, outcome: dict[str, Any], edges: list[dict[str, Any]]) -> Launch:
    """outcome: ``outcome.json``; that of a lost batch job has no monotonic time, so that the wall clocks tell it."""
    begun_ns, wall_ns = outcome["started_monotonic_ns"], outcome["started_wall_ns"]
    started = None if begun_ns is None else {"host": row["host"], "monotonic_ns": begun_ns}
    return Launch(wall_ns, phases.compute_launch_ns(edges, wall_ns, started))


def _zero_of_timeline(edges: list[dict[str, Any]], launch: Launch) -> int:
    """The launch (ns) by the wall clock of rank 0's host, which wrote the timeline, at that host's first edge."""
    host = next((edge["host"] for edge in edges if edge["rank"] == 0), None)
    return launch.wall_ns if host is None else phases.compute_zeros_ns(edges)[host] + launch.monotonic_ns[host]


def _title(row: pd.Series, labels: Labels) -> str:
    loader = labels.get("loader", {}).get(row["loader"], row["loader"])
    uneven = f", last rank loads {1 + row['straggler_loads']} times" if row["straggler_loads"] else ""
    way = "" if row["staging"] == "none" else f", {labels.get('staging', {}).get(row['staging'], row['staging'])}"
    told = "" if row["memory_mode"] == NO_MODE else f", memory mode {row['memory_mode']}"
    ranks = counted(row["gpus"], "rank")
    if row.get("ensemble", 1) > 1:
        sharing = labels.get("input_sharing", {}).get(row["input_sharing"], row["input_sharing"])
        ranks = f"{row['ensemble']} members, {sharing}"
    named = [
        benchmark_title(row["benchmark"], labels),
        ranks,
        f"{row['scaling']} scaling",
        *programs.of_others([loader]),
    ]
    return f"{', '.join(named)}{told}{way}{uneven}"


def _lanes(edges: Iterable[dict[str, Any]], launch: Launch) -> tuple[Lane, ...]:
    """The phases of each rank or, if there are many, of the first and the last one to have loaded."""
    spans: dict[int, list[tuple[str, float, float]]] = {}
    begun: dict[tuple[int, str], float] = {}
    whole = [edge for edge in edges if edge["phase"] in phases.PHASES]  # without parts of phases
    for edge in phases.sort_edges(whole):
        key, at = (edge["rank"], edge["phase"]), (edge["monotonic_ns"] - launch.monotonic_ns[edge["host"]]) * NANO
        if edge["edge"] == "begin":
            begun[key] = at
        elif key in begun:
            spans.setdefault(edge["rank"], []).append((edge["phase"], begun.pop(key), at))
    if len(spans) <= MOST_LANES:
        host = {edge["rank"]: f" on {edge['host']}" for edge in whole}
        several = len(set(host.values())) > 1
        return tuple(Lane(f"rank {rank}{host[rank] if several else ''}", tuple(spans[rank])) for rank in sorted(spans))
    loaded = {rank: end for rank, found in spans.items() for phase, _, end in found if phase == "load"}
    first, last = min(loaded, key=loaded.__getitem__), max(loaded, key=loaded.__getitem__)
    return (
        Lane(f"rank {first}, first to load", tuple(spans[first])),
        Lane(f"rank {last}, last to load", tuple(spans[last])),
    )


def _power_notes(shown: pd.DataFrame) -> list[str]:
    """Whether power is modelled, and the kinds of devices whose power is not drawn."""
    doubtful = sorted({kind for _, row in shown.iterrows() for kind in _doubtful(row)})
    told = [f"power of {kind} is doubtful in some runs and not shown" for kind in doubtful]
    return [*modelled_note(shown["power_source"], "power", "is"), *told]


def _doubtful(row: pd.Series) -> set[str]:
    """Kinds of devices whose energy in this run is doubtful."""
    kinds = row.get("doubtful_energy")
    return set(kinds.split(", ")) if isinstance(kinds, str) else set()


def _power(row: pd.Series, directory: Path, launch: Launch, end: float) -> tuple[tuple[Line, ...], str]:
    """Power of each kind of device that is not doubtful, measured and modelled apart; see `Quantity.read`.

    If a device has only an energy counter, its differences over time.
    """
    reason, grid = f"no power: {row['power_reason']}", np.linspace(0, end, POINTS)
    if not (directory / "telemetry.csv").exists():
        return (), reason
    sampled: dict[str, list[Values]] = {}
    for device in select_power_series(directory, RunDefinition.read(directory / "run.yaml").machine):
        label = f"{device.kind}, modelled" if device.sensor == MODELLED else device.kind
        power = _device_power(device, launch, grid)
        if device.kind not in _doubtful(row) and not np.isnan(power).all():
            sampled.setdefault(label, []).append(power)
    return tuple(_line(label, grid, np.array(powers)) for label, powers in sampled.items()), reason


def _line(label: str, grid: Values, sampled: Values) -> Line:
    """Mean and range of the rows of ``sampled``; values that are masked count in none."""
    label += f" (mean and range of {len(sampled)})" if len(sampled) > 1 else ""
    of_all = (sampled.mean(axis=0), sampled.min(axis=0), sampled.max(axis=0))
    return Line(label, grid, *(np.ma.filled(values, np.nan) for values in of_all))


def _device_power(device: Series, launch: Launch, grid: Values) -> Values:
    """Power of one device at each time of ``grid``; NaN before its first reading and after its last."""
    seconds, power = device.select_readings(device.power_w)
    if not len(seconds):
        at, joules = device.select_readings(device.energy_j)
        seconds, power = at[1:], np.diff(joules) / np.diff(at)
    launched = launch.monotonic_ns.get(device.host)
    if launched is None or len(seconds) < 2:
        return np.full(len(grid), np.nan)
    return np.interp(grid, seconds - launched * NANO, power, left=np.nan, right=np.nan)


def _used(column: str, label: str) -> Callable[[pd.Series, Path, Launch, float], tuple[tuple[Line, ...], str]]:
    """Reads a column of an ensemble's ``usage.csv``; see `Quantity.read`."""

    def read(row: pd.Series, directory: Path, launch: Launch, end: float) -> tuple[tuple[Line, ...], str]:
        path = directory / queue_usage.FILE
        if not path.exists():
            return (), f"no {queue_usage.FILE}: the run is no ensemble"
        grid = np.linspace(0, end, POINTS)
        sampled = np.array([_in_rows(rows, column, launch, grid) for _, rows in queue_usage.read(path).groupby("rank")])
        known = np.ma.masked_invalid(sampled)  # ranks do not all take blocks all the time
        return (
            _line(label, grid, known),
        ) if known.count() else (), f"no rank took a block of samples ({queue_usage.FILE})"

    return read


def _in_rows(rows: pd.DataFrame, column: str, launch: Launch, grid: Values) -> Values:
    """The value of a rank at each time of ``grid``: that of the row which has the time; NaN without one."""
    rows = rows.sort_values("begin_monotonic_ns")
    begins = launch.seconds(rows, "begin_monotonic_ns")
    places = np.searchsorted(begins, grid, side="right") - 1
    is_within = (places >= 0) & (grid < (begins + rows["seconds"].to_numpy(dtype=float))[places])
    return np.where(is_within, rows[column].to_numpy(dtype=float)[places], np.nan)


# What a figure over time may draw, by the names that are kinds of figures too.
QUANTITIES = {
    "power": Quantity("power (W)", _power, _power_notes),
    "queue_fill": Quantity("queue fill", _used("queue_fill", "queue of a rank")),
    "cores_used": Quantity("cores used", _used("cores_used", "cores of a rank")),
}


def _communication(path: Path, started_wall_ns: int, edges: Values) -> dict[str, Values]:
    """{what: busy share in each bin}. edges: of the bins, seconds since the launch."""
    activity = read_csv(path, ACTIVITY)
    width = edges[1]
    seconds = (activity["wall_ns"].to_numpy() - started_wall_ns) * NANO
    bins = activity["bin_s"].iloc[0] if len(activity) else width
    shares = {}
    for operation, parts in PARTS.items():
        for part in (part for part in parts if part in SHOWN):
            busy = activity[f"{operation}_{part}"].to_numpy() * bins
            shares[f"{operation} {part}"] = np.minimum(_spread(seconds, busy, bins, edges) / width, 1)
    return shares


def _spread(middles: Values, busy: Values, bins: float, edges: Values) -> Values:
    """Busy seconds of bins (middles and width) distributed over the bins between ``edges`` by their overlap."""
    total = np.zeros(len(edges) - 1)
    for middle, seconds in zip(middles, busy, strict=True):
        if seconds:
            overlap = np.minimum(edges[1:], middle + bins / 2) - np.maximum(edges[:-1], middle - bins / 2)
            total += seconds * np.clip(overlap, 0, None) / bins
    return total


MOST_HOSTS = 4  # if there are more, only the one of which others used the most
OTHERS = "others' CPU"  # begins the label of each host
TAKEN = ["others_cpu_s", "steal_s"]  # processor time that the run's cores gave to other processes and machines


def compute_background_shares(
    folder: Path, seconds: Callable[[pd.DataFrame, str], Values], grid: Values
) -> dict[str, Values]:
    """{label of a host: the share of its cores that others used, at each time of ``grid``}.

    Empty without the file, and if several machines have one name, whose rows nobody can tell apart.

    A host that does not tell it, or had no ranks by which its clock is known, is left out: a line at 0 would say that
    nobody used it.

    Args:
        folder: the run's directory.
        seconds: from rows and the column with a monotonic time to seconds since the launch.
        grid: seconds since the launch, rising.
    """
    path = folder / disturbance.FILE
    if not path.exists() or telemetry.explain_shared_name(folder):
        return {}
    rows = disturbance.read_background(path)
    found = {
        str(host): _of_host(of_host, seconds, grid)
        for host, of_host in rows.groupby("host")
        if of_host[TAKEN].notna().any(axis=None) and np.isfinite(seconds(of_host, "end_monotonic_ns")).all()
    }
    if len(found) > MOST_HOSTS:
        most = max(found, key=lambda host: float(found[host].sum()))
        return {f"{OTHERS}, most on {most}": found[most]}
    return {f"{OTHERS} on {host}" if len(found) > 1 else OTHERS: share for host, share in found.items()}


def _of_host(rows: pd.DataFrame, seconds: Callable[[pd.DataFrame, str], Values], grid: Values) -> Values:
    """The share of the row that has the time; 0 where there is none, since nothing was noticed."""
    rows = rows.sort_values("end_monotonic_ns")
    ends, lengths = seconds(rows, "end_monotonic_ns"), rows["seconds"].to_numpy(dtype=float)
    available = rows["cores"].to_numpy(dtype=float) * lengths
    used = rows[TAKEN].sum(axis=1).to_numpy(dtype=float) / np.where(available > 0, available, np.inf)
    places = np.minimum(np.searchsorted(ends, grid), len(ends) - 1)
    is_within = ((ends - lengths)[places] <= grid) & (grid <= ends[places])
    return np.where(is_within, np.clip(used, 0.0, 1.0)[places], 0.0)
