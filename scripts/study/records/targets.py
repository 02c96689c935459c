"""Epochs, time and energy of a run until its target quality, derived from its stored files.

The target may differ between studies that share a run, so this is no part of the run record. As in the MLPerf Training
rules, the clock stops at the end of the first validation that reaches the target.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core.csv_files import FINITE, NUMBER, WHOLE, read_csv
from study.core.files import number_or_none
from study.experiment.definition import RunDefinition
from study.experiment.target import Target
from study.instruments import phases
from study.instruments.power import summary
from study.training.ensemble import results

MEASURES = ("epochs_to_target", "launch_to_target_s", "training_to_target_s", "load_to_target_j")
# target_reached: empty if it cannot be told.
COLUMNS = ("quality_target", "target_reached", *MEASURES, "target_reason", "target_energy_reason")


@dataclass(frozen=True)
class _Reached:
    """The epoch that reached the target: its number from 1, and its end, by its host's clock (ns), if known."""

    epoch: int
    ended_wall_ns: int | None


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
    history = read_csv(folder / "history.csv", {"epoch": WHOLE}, others=_kind(target))
    if target.column not in history or history.empty:
        return row | {"target_reason": f"no validation: history.csv has no {target.column}"}
    reached = _first_epoch(history, target)
    if reached is None:
        best = number_or_none(target.best(history[target.column]))
        told = "is not finite" if best is None else f"is {best:.4g} at best"
        why = f"not reached: {target.quantity} {told} in {len(history)} epochs"
        return row | {"target_reached": False, "target_reason": why}
    row |= {"target_reached": True, "epochs_to_target": reached.epoch}
    return row | _times(folder, record, reached)


def _kind(target: Target) -> Callable[[str], str | None]:
    """The kinds of the columns of ``history.csv`` that are used, but for the epoch."""
    return {target.column: NUMBER, "time_s": FINITE, "begin_wall_ns": WHOLE}.get


def _first_epoch(history: pd.DataFrame, target: Target) -> _Reached | None:
    position = target.first_reached(history[target.column])
    if position is None:
        return None
    row = history.iloc[position]
    if "begin_wall_ns" not in history:
        return _Reached(int(row["epoch"]), None)
    begin = int(history["begin_wall_ns"].iloc[position])
    return _Reached(int(row["epoch"]), begin + round(row["time_s"] * 1e9))


def _rank_of_history(record: dict[str, Any]) -> int:
    """The rank that wrote ``history.csv``: 0, or of an ensemble that of the first member that trained all epochs."""
    members = (record["ensemble"] or {}).get("members", [])
    return min((each["rank"] for each in members if results.trained_to_the_end({"member": each})), default=0)


def _times(folder: Path, record: dict[str, Any], reached: _Reached) -> dict[str, Any]:
    """The times and the energy until the end of the epoch, or the reasons why they are missing."""
    if record["resumed_after_epoch"]:
        return dict.fromkeys(("target_reason", "target_energy_reason"), "resumed from a checkpoint: no times")
    if reached.ended_wall_ns is None:
        why = "history.csv is of an older version, without the times at which epochs began"
        return dict.fromkeys(("target_reason", "target_energy_reason"), why)
    edges = phases.read(folder / "phases.jsonl")
    if clock := phases.set_clock(edges):
        return dict.fromkeys(("target_reason", "target_energy_reason"), f"{clock}: no times")
    rank, ahead_ns = _rank_of_history(record), phases.clock_offsets_ns(record["hosts"])
    own = [edge for edge in edges if edge["rank"] == rank]
    begins = [edge["wall_ns"] for edge in own if (edge["phase"], edge["edge"]) == ("train", "begin")]
    ended_wall_ns = reached.ended_wall_ns - (ahead_ns.get(own[0]["host"], 0) if own else 0)
    found: dict[str, Any] = {
        "launch_to_target_s": (ended_wall_ns - record["provenance"]["started_wall_ns"]) / 1e9,
        "training_to_target_s": (ended_wall_ns - begins[0]) / 1e9 if begins else None,
        "target_reason": None if begins else f"phases.jsonl has no begin of rank {rank}'s phase train",
    }
    machine = RunDefinition.read(folder / "run.yaml").machine
    joules, no_energy = summary.energy_until(folder, machine, edges, ended_wall_ns)
    return found | {"load_to_target_j": joules, "target_energy_reason": no_energy}
