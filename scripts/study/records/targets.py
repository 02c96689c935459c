"""Epochs, time and energy of a run until its target quality, derived from its stored files.

The target may differ between studies that share a run, so this is no part of the run record. As in the MLPerf Training
rules, the clock stops at the end of the first validation that reaches the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import fields
from study.core.csv_columns import Columns, read_columns
from study.core.csv_files import FINITE, NUMBER, WHOLE
from study.core.files import to_finite_or_none
from study.core.lazy import pandas as pd
from study.experiment.definition import RunDefinition
from study.experiment.target import Target
from study.instruments import phases
from study.instruments.power import summary, telemetry
from study.records.nodes import unseen_nodes

WAS_SET = "a clock was set"
EPOCHS = {"epoch": WHOLE, "time_s": FINITE, "begin_monotonic_ns": WHOLE}  # columns of history.csv
COLUMNS = tuple(each.name for each in fields.find_section("Target quality").fields)
MEASURES = tuple(name for name in COLUMNS if fields.list_columns()[name].measure)


@dataclass(frozen=True)
class _Reached:
    """The epoch that reached the target: its number from 1, and its end by its host's monotonic clock (ns)."""

    epoch: int
    ended_ns: int


def to_target(folder: Path, record: dict[str, Any], target: Target | None) -> dict[str, Any]:
    """The `COLUMNS` of one run. What cannot be derived is None, with the reason.

    ``launch_to_target_s`` begins with the launcher. ``training_to_target_s`` begins with phase train on the rank that
    wrote the history. ``load_to_target_j``, the energy of the whole job, begins with the first rank's phase load: power
    is not sampled before.

    Args:
        folder: the run's directory.
        record: its run record.
        target: None if the benchmark and the study declare none.
    """
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    if target is None:
        return row | {"target_reason": f"no target_quality is declared for {record['parameters']['benchmark']}"}
    row["quality_target"] = str(target)
    if record["status"] != "ok":
        return row | {"target_reason": "the run failed"}
    if "history.csv" not in record["files"]:
        return row | {"target_reason": "the run has no history.csv"}
    history = read_columns(folder / "history.csv", EPOCHS, others={target.column: NUMBER}.get)
    if target.column not in history or not history.rows:
        return row | {"target_reason": f"no validation: history.csv has no {target.column}"}
    reached = _first_epoch(history, target)
    if reached is None:
        best = to_finite_or_none(target.find_best(history[target.column]))
        quality = "is not finite" if best is None else f"is {best:.4g} at best"
        why = f"not reached: {target.quantity} {quality} in {history.rows} epochs"
        return row | {"target_reached": False, "target_reason": why}
    row |= {"target_reached": True, "epochs_to_target": reached.epoch}
    return row | _times(folder, record, reached)


def _first_epoch(history: Columns, target: Target) -> _Reached | None:
    position = target.find_first_reached(history[target.column])
    if position is None:
        return None
    epoch, begun_ns = (int(history[name][position]) for name in ("epoch", "begin_monotonic_ns"))
    return _Reached(epoch, begun_ns + round(float(history["time_s"][position]) * 1e9))


def has_stopped_early(run: Any) -> bool:
    """True if a command reported fewer epochs than were planned: its times are those to its target.

    run: a row of the tidy table.
    """
    epochs = run.get("program_epochs")  # NaN of our own training, which is not less
    return epochs is not None and bool(epochs < run["epochs_per_rank"])


def count_trained_epochs(runs: pd.DataFrame) -> pd.Series:
    """Epochs that each rank trained, by run: as planned, or as many as a command reported."""
    planned = runs["epochs_per_rank"].astype(float)
    return runs["program_epochs"].astype(float).fillna(planned) if "program_epochs" in runs else planned


def number_stopped(runs: pd.DataFrame) -> int:
    """How many runs stopped early, see `has_stopped_early`. runs: rows of the tidy table."""
    if "program_epochs" not in runs:
        return 0
    return int((runs["program_epochs"].astype(float) < runs["epochs_per_rank"]).sum())


def _rank_of_history(record: dict[str, Any]) -> int:
    """The rank that wrote ``history.csv``: 0, or of a command the rank whose epochs count."""
    return int(record["program"]["rank"]) if record["program"] else 0


def _times(folder: Path, record: dict[str, Any], reached: _Reached) -> dict[str, Any]:
    """The times and the energy until the end of the epoch, or the reasons why they are missing."""
    if record["resumed_after_epoch"] is not None:
        return dict.fromkeys(("target_reason", "target_energy_reason"), "resumed from a checkpoint: no times")
    edges = phases.read_edges(folder / "phases.jsonl")
    clock, rank = phases.find_set_clock(edges), _rank_of_history(record)
    own = sorted((edge for edge in edges if edge["rank"] == rank), key=lambda edge: edge["monotonic_ns"])
    if not own:
        return dict.fromkeys(("target_reason", "target_energy_reason"), f"phases.jsonl has no edge of rank {rank}")
    host, first = own[0]["host"], own[0]
    provenance = record["provenance"]
    started = {"host": provenance["host"], "monotonic_ns": provenance["started_monotonic_ns"]}
    launched = phases.compute_launch_ns(own, provenance["started_wall_ns"], started)[host]
    times = _durations(own, reached.ended_ns, launched, record["runtime_s"], rank)
    if unclear := telemetry.explain_shared_name(folder):  # the launching host's clock may be another machine's
        reasons = "; ".join(filter(None, [times["target_reason"], f"launch_to_target_s: {unclear}"]))
        times |= {"launch_to_target_s": None, "target_reason": reasons}
    run = RunDefinition.read(folder / "run.yaml")
    if unseen := unseen_nodes(run):
        return times | {"target_energy_reason": unseen}
    machine = run.machine
    if clock and len({edge["host"] for edge in edges}) > 1:  # the other hosts' clocks tell when the epoch ended
        return times | {"target_energy_reason": f"{clock}: no energy"}
    until_ns = reached.ended_ns - first["monotonic_ns"] + first["wall_ns"]
    joules, no_energy = summary.energy_until(folder, machine, edges, until_ns, (host, reached.ended_ns))
    return times | {"load_to_target_j": joules, "target_energy_reason": no_energy}


def _durations(
    own: list[dict[str, Any]], ended_ns: int, launched_ns: int, runtime_s: float, rank: int
) -> dict[str, Any]:
    """The two times to the target, each within the run, or the reason. own: the rank's edges, in order.

    ended_ns, launched_ns: the epoch's end and the launcher's start, by the monotonic clock of the rank's host.
    """
    begins = [edge["monotonic_ns"] for edge in own if (edge["phase"], edge["edge"]) == ("train", "begin")]
    durations: dict[str, Any] = {"launch_to_target_s": (ended_ns - launched_ns) / 1e9, "training_to_target_s": None}
    reasons = []
    if begins:
        durations["training_to_target_s"] = (ended_ns - begins[0]) / 1e9
    else:
        reasons.append(f"phases.jsonl has no begin of rank {rank}'s phase train")
    for name, seconds in durations.items():
        if seconds is not None and not 0 <= seconds <= runtime_s:
            durations[name] = None
            reasons.append(f"{name} would be {seconds:.2f} s of {runtime_s:.2f} s: {WAS_SET}")
    return durations | {"target_reason": "; ".join(reasons) or None}
