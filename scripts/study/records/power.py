"""Columns of power and energy in the tidy table of runs: their names, and their values from a run record."""

from __future__ import annotations

from typing import Any

from study.core import fields
from study.core.lazy import pandas as pd
from study.instruments.phases import PHASES
from study.instruments.power.readings import MODELLED

COVERED = tuple(phase for phase in PHASES if phase != "startup")  # phases in which power is sampled
# Columns of power and energy, each measured or modelled as a whole run is: {name: whose meters tell it}.
METERED = {name: each.meter for name, each in fields.list_columns().items() if each.meter}
OF_POWER = tuple(METERED)
OF_HOST = tuple(name for name, meter in METERED.items() if meter != "gpu")
OF_GPU = tuple(name for name, meter in METERED.items() if meter == "gpu")
# Those of a node and its parts, and of each phase.
NODE_MEANS = ["node_power_w", "cpu_power_w", "memory_power_w"]
NODE_POWER = [*NODE_MEANS, "node_energy_j", "node_power_time_j"]
# The same from the start of the run's processes until their end; see `_whole_run`.
WHOLE_RUN = "whole_run_"
WHOLE_RUN_NODE = [f"{WHOLE_RUN}{name}" for name in (*NODE_MEANS, "node_energy_j")]
SHARED = "another run was on its host at the same time, whose energy the host's meters count too"
NO_MEAN = "measured in some repeats, modelled in others: no mean"


def has_no_mean(repeats: pd.DataFrame, measure: str) -> bool:
    """Whether a mean of ``measure`` would be one of measured and modelled power. repeats: rows of the tidy table."""
    return measure in OF_POWER and repeats["power_source"].nunique() > 1


def name_reason_column(measure: str) -> str:
    """The column that says why a measure of power or energy is empty."""
    return f"{WHOLE_RUN}power_reason" if measure.startswith(WHOLE_RUN) else "power_reason"


def note_modelled_power(sources: pd.Series, subject: str = "power and energy", verb: str = "are") -> list[str]:
    """A remark if power is modelled, in all or in some of the shown runs. sources: a column ``power_source``."""
    distinct = set(sources.dropna())
    if MODELLED not in distinct:
        return []
    some = "" if distinct == {MODELLED} else " of some runs"
    return [f"{subject}{some} {verb} modelled from CPU utilisation (power_model), not measured"]


def drop_shared_power(runs: pd.DataFrame) -> pd.DataFrame:
    """The tidy table of runs, without power and energy of a host for runs that shared it.

    A host's meters know no runs. Those of GPUs stay: a GPU is one run's own. runs: with the column ``overlapped``.
    """
    shared = runs["overlapped"] & runs["power_source"].notna()
    if not shared.any():
        return runs
    of_host_only = shared & runs["gpu_energy_j"].isna()
    corrected = runs.copy()
    for names, where in ((OF_HOST, shared), (OF_GPU, of_host_only)):
        for name in corrected.columns.intersection(names):
            corrected[name] = corrected[name].astype(object).where(~where, None).astype(float)
    reasons = corrected["power_reason"].where(corrected["power_reason"].notna(), "")
    with_shared = reasons.where(reasons == "", reasons + "; ") + SHARED
    return corrected.assign(power_reason=corrected["power_reason"].astype(object).mask(shared, with_shared))


def power_columns(record: dict[str, Any]) -> dict[str, Any]:
    """The columns of power and energy that are derived from a run record: of each kind of device, and others."""
    power, training = record["power"], record["training"]
    job, window, samples = power["energy_job_j"], power.get("energy_window_s"), None
    if training:
        derived, workload = record["derived"], record["workload"]
        program_epochs = (record.get("program") or {}).get("epochs")  # of a command, which may stop at its target
        ranks = record["parameters"]["gpus"] * record["parameters"]["emulated_ranks"]
        epochs = program_epochs or derived["epochs_per_rank"]
        samples = ranks * epochs * workload["samples_per_rank"] if workload["samples_per_rank"] else None
    gaps = [part["gap_s"] for part in power["components"].values() if part["gap_s"] is not None]
    return {
        "energy_delay_product_js": job * window if job and window else None,  # both from load to evaluate
        "samples_per_j": samples / job if job and samples else None,
        **{f"{kind}_energy_j": part["energy_j"] for kind, part in power["components"].items()},
        **_node_power(record),
        **_whole_run(record),
        **{f"{phase}_energy_j": power.get("energy_by_phase_j", {}).get(phase) for phase in COVERED},
        "power_gap_s": max(gaps, default=None),
        "power_reason": "; ".join(dict.fromkeys(filter(None, [power["reason"], *_doubts(power)]))) or None,
        "doubtful_energy": ", ".join(kind for kind, part in power["components"].items() if _doubt(part)) or None,
    }


def _doubt(part: dict[str, Any]) -> str | None:
    """Why the energy of a component is doubtful, or None."""
    return part["doubtful"][0]["why"] if part["doubtful"] else None


def _doubts(power: dict[str, Any]) -> list[str]:
    """Why energies are doubtful: of the whole run, and of phases where the whole run's is not."""
    doubts = {kind: why for kind, part in power["components"].items() if (why := _doubt(part))}
    of_phases = [f"phase {phase}: {why}" for phase, parts in power["phases"].items() for kind, part in parts.items()
                 if kind not in doubts and (why := _doubt(part))]  # fmt: skip
    return [*doubts.values(), *of_phases]


def _node_power(record: dict[str, Any]) -> dict[str, float | None]:
    """Mean power of a node and of its parts from load to evaluate (W), and energy from power (J).

    As in SC18, Table 1: the mean of the power readings. A sensor without readings of power has the energy of its
    counter / time. ``node_power_time_j`` is mean power x time, of all nodes; ``node_energy_j`` is the counter's energy.
    """
    power, nodes = record["power"], record["derived"]["nodes"]
    seconds, parts = power["energy_window_s"], power["components"]
    return {
        **{f"{kind}_power_w": _watts(parts[kind], nodes, seconds) for kind in ("node", "cpu", "memory")},
        "node_power_time_j": parts["node"]["trapezoid_j"],
    }


def _watts(part: dict[str, Any], nodes: int, seconds: float | None) -> float | None:
    """Mean power of a part of a node."""
    joules = part["energy_j"] if part["trapezoid_j"] is None else part["trapezoid_j"]
    return None if joules is None or not seconds else joules / nodes / seconds


def _whole_run(record: dict[str, Any]) -> dict[str, Any]:
    """Power and energy of the run's processes, from their start to their end. Empty if the sampler did not cover it.

    ``whole_run_node_energy_j`` is the counter's energy of all nodes.
    """
    whole = record["power"]["whole_run"] or {}
    seconds, parts, nodes = whole.get("window_s"), whole.get("components") or {}, record["derived"]["nodes"]
    outside_s = None if seconds is None else record["runtime_s"] - seconds
    window: dict[str, Any] = {"window_s": seconds, "outside_s": outside_s}
    window["energy_per_gpu_j"] = whole.get("energy_per_gpu_j")
    window["energy_per_gpu_one_hz_j"] = joules = whole.get("energy_per_gpu_one_hz_j")
    window["power_per_gpu_one_hz_w"] = None if joules is None or not seconds else joules / seconds
    for kind in ("node", "cpu", "memory"):
        window[f"{kind}_power_w"] = _watts(parts[kind], nodes, seconds) if parts else None
    window["node_energy_j"] = parts["node"]["energy_j"] if parts else None
    reason = whole["reason"] if whole else record["power"]["reason"]
    window["power_reason"] = reason if window["energy_per_gpu_j"] is None else None
    return {f"{WHOLE_RUN}{name}": value for name, value in window.items()}
