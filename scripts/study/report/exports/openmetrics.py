"""How far a study is, as text in the OpenMetrics format: its runs by state, and the runs that go on.

A run's phase and epoch are what its ranks have logged, its power and energy what its sensors have read so far. What is
not known is absent. While a study runs, `study status --openmetrics` prints it.
"""

from __future__ import annotations

import collections
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from study.core import paths
from study.core.files import AnyPath, write_text
from study.core.wording import counted
from study.experiment.expansion import load_study
from study.experiment.study import Study
from study.instruments import heartbeats, phases
from study.instruments.power import series, telemetry
from study.machines.machine import load
from study.records import run_states
from study.report.exports import kinds
from study.report.trace import edges_of_run

LOG_END = 65536  # bytes at the end of a log in which the last epoch is looked for
EPOCH = re.compile(rb"(?:^|>:)epoch ([0-9]{1,9})/([0-9]{1,9}): ", re.M)  # `study.training.loop` prints it
GAUGE, COUNTER, INFO = "gauge", "counter", "info"
# {name of a metric: (type, unit, meaning)}
METRICS = {
    "study_runs": (GAUGE, "", "Runs of the study by state."),
    "study_loading_measurements": (GAUGE, "", "Loading measurements of the study by state."),
    "study_run": (INFO, "", "A running run, or else the last one: its state, and the phase of the rank that is last."),
    "study_run_epoch": (GAUGE, "", "Epochs that the run has finished."),
    "study_run_epochs": (GAUGE, "", "Epochs that the run trains."),
    "study_run_begin_timestamp_seconds": (GAUGE, "seconds", "Begin of the first rank, since 1970."),
    "study_run_heartbeat_timestamp_seconds": (GAUGE, "seconds", "Last heartbeat of any rank, since 1970."),
    "study_run_power_watts": (GAUGE, "watts", "Power of a device at its last reading."),
    "study_run_energy_joules": (COUNTER, "joules", "Energy of a device from its first reading in the run to its last."),
}  # fmt: skip
Labels = Mapping[str, str]


@dataclass
class Samples:
    """Samples by metric, [(labels, value)]; all have the labels ``common``."""

    common: Labels
    found: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)

    def add(self, metric: str, value: float | None, **labels: str) -> None:
        """Add a sample; None adds nothing."""
        if value is not None:
            self.found.setdefault(metric, []).append((labels, value))

    def text(self) -> str:
        """All metrics in the order of `METRICS`, and the end that the format asks for."""
        lines = []
        for name, (kind, unit, meaning) in METRICS.items():
            if not (samples := self.found.get(name)):
                continue
            lines += [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {meaning}"]
            full = name + {COUNTER: "_total", INFO: "_info"}.get(kind, "")
            lines += [f"{full}{{{_labels({**self.common, **labels})}}} {value:.15g}" for labels, value in samples]
        return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@kinds.of_study(
    "openmetrics",
    title="runs by state, and the last run's phase and energy, for Prometheus",
    file="{study}.prom",
)
def export(results: kinds.Results, path: Path) -> str:
    """Write the text of a study as it is now."""
    found = of_study(load_study(results.study, load(results.machine)), results.machine, str(results.of_machine))
    write_text(path, found)
    return f"{path}: {counted(len(found.splitlines()), 'line')}"


def of_study(study: Study, machine: str, results: str) -> str:
    """The text of a study. results: of the machine, ``results/<machine>``; raises as `text`."""
    found = run_states.of_runs(study.runs, results)
    counts = collections.Counter(state for _, state, _ in found)
    states = {state: counts[state] for state in run_states.STATES}
    loading = run_states.loads_done(study.loading, results), len(study.loading)
    runs = [
        (run.directory, state, paths.run_folder(results, run.directory))
        for run, state in run_states.shown(found, results)
    ]
    return text(study.name, machine, states, loading, runs)


def text(
    study: str,
    machine: str,
    states: Mapping[str, int],
    loading: tuple[int, int],
    runs: Iterable[tuple[str, str, AnyPath]],
) -> str:
    """The text.

    Args:
        study: its name.
        machine: on which it runs.
        states: {state: number of runs}.
        loading: loading measurements that are done, and all of them.
        runs: (name, state, directory) of those that are told one by one.

    Raises:
        StudyError: a file of a run is damaged.
    """
    samples = Samples({"study": study, "machine": machine})
    for state, number in states.items():
        samples.add("study_runs", number, state=state.replace(" ", "_"))
    done, planned = loading
    if planned:
        samples.add("study_loading_measurements", done, state="done")
        samples.add("study_loading_measurements", planned - done, state="to_do")
    for name, state, folder in runs:
        _of_run(samples, name, state, Path(folder))
    return samples.text()


def _of_run(samples: Samples, name: str, state: str, folder: Path) -> None:
    edges = edges_of_run(folder)
    phase, rank = phases.furthest_behind(edges) if state in run_states.GOING_ON else phases.last(edges)
    where = {} if phase is None else {"phase": phase, "rank": str(rank)}
    samples.add("study_run", 1, run=name, state=state.replace(" ", "_"), **where)
    epoch, epochs = _epoch(folder / "train.log")
    samples.add("study_run_epoch", epoch, run=name)
    samples.add("study_run_epochs", epochs, run=name)
    begin = min((edge["wall_ns"] for edge in edges), default=None)
    samples.add("study_run_begin_timestamp_seconds", None if begin is None else begin / 1e9, run=name)
    if (folder / "ranks").is_dir():
        samples.add("study_run_heartbeat_timestamp_seconds", heartbeats.latest(folder / "ranks"), run=name)
    for each in _readings(folder):
        device = {"run": name, "host": each.host, "sensor": each.sensor, "kind": each.kind, "device": each.name}
        power = each.readings(each.power_w)[1]
        samples.add("study_run_power_watts", float(power[-1]) if len(power) else None, **device)
        if len(each.seconds):
            whole = float(each.seconds[0]), float(each.seconds[-1])
            counted = each.counted_j(*whole)
            samples.add("study_run_energy_joules", each.integral_j(*whole) if counted is None else counted, **device)


def _epoch(log: Path) -> tuple[int | None, int | None]:
    """The last epoch that rank 0 has printed, and the number of epochs; None if it has printed none."""
    if not log.is_file():
        return None, None
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_END))
        told = EPOCH.findall(file.read())
    return (int(told[-1][0]), int(told[-1][1])) if told else (None, None)


def _readings(folder: Path) -> list[series.Series]:
    """Of the run's telemetry; while it goes on, of that of its nodes so far."""
    if (folder / "telemetry.csv").is_file():
        return series.read_series(folder / "telemetry.csv")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "telemetry.csv")
        telemetry.merge(folder / "ranks", path, Path(scratch, "sensors.json"))
        return series.read_series(path) if path.is_file() else []
