"""A run's power and energy for the run record, computed from its telemetry and its phases.

Energies are of windows (`study.instruments.power.run_windows`): the run, each phase, and the run's processes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from study.core.files import AnyPath
from study.instruments import phases
from study.instruments.phases import PHASES, PROGRAM
from study.instruments.power import counted_devices, energy, run_windows, telemetry
from study.instruments.power.plausibility import KINDS
from study.instruments.power.readings import MODELLED
from study.instruments.power.run_windows import AGAIN, PROCESSES, RUN, Window, Windows, get_phase
from study.instruments.power.telemetry import Series, read_series

NO_GPUS = "ranks have no GPUs of their own, and other sensors measure all ranks of a node together"
NOTHING: dict[str, Any] = {"energy_j": None, "trapezoid_j": None, "one_hz_j": None, "gap_s": None, "reason": None,
                           "doubtful": None}  # fmt: skip


def summarize(folder: AnyPath, machine: dict[str, Any], gpus: int, edges: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The run record's ``power``, a dict; ``config/fields/power.yaml`` declares its keys.

    folder: the run's directory. machine: the settings of its machine. gpus: the number of its ranks. edges: of its
    phases (`study.instruments.phases.read_edges`).
    """
    folder, edges = Path(folder), list(edges)
    absent = _explain_absent_sensors(folder, machine)
    if unclear := telemetry.explain_shared_name(folder):
        return make_unmeasured(machine, gpus, unclear)
    hosts = run_windows.group_hosts(folder)
    on_machines = list(run_windows.rename_hosts(edges, hosts))
    windows = run_windows.compute_windows(on_machines)
    if not (folder / "telemetry.csv").exists():
        return make_unmeasured(machine, gpus, absent or "the sampler wrote nothing")
    if not any(name == RUN for _, name in windows) or not (folder / "metrics.json").exists():  # rank 0 writes it last
        return make_unmeasured(machine, gpus, "the run did not come to its end")
    series = counted_devices.keep_each_once(read_series(folder / "telemetry.csv"), hosts)
    if not series:
        return make_unmeasured(machine, gpus, absent or "telemetry.csv has no reading")
    of_processes, why_none = run_windows.compute_process_windows(folder, on_machines, windows, hosts)
    windows |= of_processes
    used = counted_devices.find_used_gpus(folder, machine, series, edges)
    machine = counted_devices.add_gpus(machine, used)
    energies, source = _compute_energies(series, windows, folder, machine, used)
    busy, memory = _compute_gpu_use(series, windows, machine, used)
    power = _make_power(energies, windows, machine, gpus, source, absent)
    gpu = {"gpu_utilisation_pct": busy, "gpu_memory_mb": memory}
    return power | gpu | {"whole_run": _summarize_whole_run(energies, of_processes, machine, gpus, why_none)}


def make_unmeasured(machine: dict[str, Any], ranks: int, reason: str) -> dict[str, Any]:
    """The record's ``power`` of a run whose power is not known. reason: why. Others: as for `summarize`."""
    return _make_power({}, {}, machine, ranks, None, reason)


def energy_until(
    folder: AnyPath,
    machine: dict[str, Any],
    edges: Iterable[dict[str, Any]],
    wall_ns: int,
    ended: tuple[str, int],
) -> tuple[float | None, str | None]:
    """(energy of the whole job, J, from the first rank's ``load`` until ``wall_ns``, None), or (None, the reason).

    folder, machine, edges: as for `summarize`, of a run that came to its end. wall_ns: by the launching host's clock.
    ended: the same moment by the monotonic clock of a host: (host, ns).
    """
    folder, edges = Path(folder), list(edges)
    if unclear := telemetry.explain_shared_name(folder):
        return None, unclear
    hosts = run_windows.group_hosts(folder)
    series = read_series(folder / "telemetry.csv") if (folder / "telemetry.csv").exists() else []
    series = counted_devices.keep_each_once(series, hosts)
    windows = run_windows.compute_windows_until(list(run_windows.rename_hosts(edges, hosts)), wall_ns, ended)
    if not series or not windows:
        absent = _explain_absent_sensors(folder, machine)
        return None, absent or f"{'no phase load' if series else 'no reading'} in the run's files"
    used = counted_devices.find_used_gpus(folder, machine, series, edges)
    machine = counted_devices.add_gpus(machine, used)
    energies = _compute_energies(series, windows, folder, machine, used)[0][RUN]
    joules = _compute_job_energy(energies, machine)
    if joules is not None:
        return joules, None
    reasons = (part["reason"] for part in energies.values() if part["energy_j"] is None)
    return None, "; ".join(dict.fromkeys(filter(None, reasons)))


def energy_of_gpus(
    folder: AnyPath, machine: dict[str, Any], edges: Iterable[dict[str, Any]], gpus: Mapping[int, str | None]
) -> dict[int, tuple[float | None, str | None]]:
    """The energy of each rank's own GPU, from its first ``load`` to its last ``evaluate``.

    Returns {rank: (J, None)}, or (None, the reason) for a rank. folder, machine, edges: as for `summarize`. gpus: the
    UUID of each rank's GPU, None for an unknown one.
    """
    path, edges = Path(folder) / "telemetry.csv", list(edges)
    if not machine["gpus_per_rank"]:
        return dict.fromkeys(gpus, (None, NO_GPUS))
    series = {each.name: each for each in (read_series(path) if path.exists() else []) if each.sensor == "nvml"}
    energies: dict[int, tuple[float | None, str | None]] = {}
    for rank, gpu in gpus.items():
        of_rank = [edge for edge in edges if edge["rank"] == rank]
        window = next((span for (_, name), span in run_windows.compute_windows(of_rank).items() if name == RUN), None)
        if gpu is None or gpu not in series:
            energies[rank] = None, "no readings of its GPU"
        elif list(gpus.values()).count(gpu) > 1:
            energies[rank] = None, "it shares its GPU with another rank"
        elif window is None:
            energies[rank] = None, "it did not come to its end"
        else:
            part = energy.compute_energy(series[gpu], *window, machine["sampling_hz"])
            energies[rank] = part.best_j, part.reason if part.best_j is None else None
    return energies


def select_power_series(folder: AnyPath, machine: dict[str, Any]) -> list[Series]:
    """The readings of the devices whose power is that of a run that came to its end, and of modelled power.

    The arguments are as for `summarize`.
    """
    series = read_series(Path(folder) / "telemetry.csv")
    measured = [each for each in series if each.sensor != MODELLED]
    path = Path(folder) / "phases.jsonl"
    used = counted_devices.find_used_gpus(
        Path(folder), machine, series, phases.read_edges(path) if path.exists() else []
    )
    modelled = [each for each in series if each.sensor == MODELLED]
    return [*counted_devices.keep_rank_devices(measured, machine["power_sensors"], used.gpus), *modelled]


def _summarize_whole_run(
    energies: dict[str, Any], windows: Windows, machine: dict[str, Any], ranks: int, why_none: str | None
) -> dict[str, Any]:
    """The record's ``whole_run``: power and energy of the window `PROCESSES`, or the reason why there are none.

    windows: of all nodes; ``window_s`` is their mean, so that energy / ``window_s`` is mean power.
    """
    whole = energies.get(PROCESSES)
    if whole is None:
        return {"window_s": None, "reason": why_none, "energy_per_gpu_j": None, "energy_per_gpu_one_hz_j": None,
                "components": None}  # fmt: skip
    per_gpu, why = _select_gpu_energy(whole, machine)
    one_hz, _ = _select_gpu_energy(whole, machine, "one_hz_j")
    return {
        "window_s": sum(end - begin for begin, end in windows.values()) / len(windows),
        "reason": why,
        "energy_per_gpu_j": None if per_gpu is None else per_gpu / ranks,
        "energy_per_gpu_one_hz_j": None if one_hz is None else one_hz / ranks,
        "components": whole,
    }


def _compute_energies(
    series: list[Series], windows: Windows, folder: Path, machine: dict[str, Any], used: counted_devices.UsedGpus
) -> tuple[dict[str, Any], str]:
    """(the energies of `_sum_by_window`, whether they are measured or modelled)."""
    measured = [each for each in series if each.sensor != MODELLED]
    series, reasons = counted_devices.choose_series(measured or series, machine["power_sensors"], *used)
    reasons = _explain_lost_parts(folder, series, bool(used.gpus)) | reasons
    return _sum_by_window(series, windows, machine["sampling_hz"], reasons), "measured" if measured else MODELLED


def _explain_lost_parts(folder: Path, series: list[Series], by_uuid: bool) -> dict[str, str]:
    """{kind: reason} of kinds of which a part could not be read: the sum of the others would be too low.

    series: those that count. by_uuid: whether only the ranks' own GPUs count, whose readings are looked for elsewhere.
    """
    hosts = run_windows.group_hosts(folder)
    counting = {(each.host, each.kind): each.sensor for each in series}
    reasons: dict[str, dict[str, None]] = {}
    for each in telemetry.read_host_samplers(folder):
        host = hosts.get(each.get("host", ""), each.get("host", ""))
        for key, why in each["reasons"].items():
            sensor, kind = [*key.split("/", 2), ""][:2]
            is_own = sensor == "nvml" and by_uuid
            if kind in KINDS and not is_own and counting.get((host, kind), sensor) == sensor:
                reasons.setdefault(kind, {})[why] = None
    return {kind: "; ".join(whys) for kind, whys in reasons.items()}


def _compute_gpu_use(
    series: list[Series], windows: Windows, machine: dict[str, Any], used: counted_devices.UsedGpus
) -> tuple[float | None, float | None]:
    """(mean utilisation of the ranks' GPUs while they train (%), the most memory in use on one), or None.

    Of a command that tells no phase train, utilisation is of its whole program.
    """
    counting, _ = counted_devices.choose_series(series, machine["power_sensors"], *used)
    name = "train" if any(window == "train" for _, window in windows) else PROGRAM
    spans: dict[str, list[Window]] = {}
    for (host, window), span in windows.items():
        if get_phase(window) == name:
            spans.setdefault(host, []).append(span)
    gpus = [each for each in counting if each.kind == "gpu"]
    return energy.compute_mean_utilisation(gpus, spans), energy.find_most_memory_mb(gpus)


def _explain_absent_sensors(folder: Path, machine: dict[str, Any]) -> str | None:
    """Why configured sensors are missing, or None. folder: the run's directory."""
    if not machine["power_sensors"]:
        return f"no power sensor is configured for machine {machine['name']}"
    return (
        "; ".join(
            dict.fromkeys(
                reason for host in telemetry.read_host_samplers(folder) for reason in host["reasons"].values()
            )
        )
        or None
    )


def _sum_by_window(series: list[Series], windows: Windows, rate_hz: float, reasons: dict[str, str]) -> dict[str, Any]:
    """{window: {kind: energies summed over all hosts' devices of that kind}}, of a phase over all its times."""
    energies: dict[str, Any] = {}
    for name in dict.fromkeys(name for _, name in windows):
        spans = {host: span for (host, window), span in windows.items() if window == name}
        energies[name] = {
            kind: {**NOTHING, "reason": reasons[kind], "gap_s": _compute_unread_s(kind, series, spans)}
            if kind in reasons
            else _sum_component([each for each in series if each.kind == kind], spans, rate_hz, kind)
            for kind in KINDS
        }
    for name in [name for name in energies if AGAIN in name]:
        first, again = energies[get_phase(name)], energies.pop(name)
        energies[get_phase(name)] = {kind: _add_components(first[kind], again[kind]) for kind in KINDS}
    return energies


def _add_components(first: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """The sum of a component's energies in two windows that have no moment in common."""
    both = first, again
    gaps = [each["gap_s"] for each in both if each["gap_s"] is not None]
    return {
        **{name: _add_up(each[name] for each in both) for name in ("energy_j", "trapezoid_j", "one_hz_j")},
        "gap_s": sum(gaps) if gaps else None,
        "reason": next(
            (each["reason"] for each in sorted(both, key=lambda each: each["energy_j"] is not None) if each["reason"]),
            None,
        ),
        "doubtful": [*(first["doubtful"] or []), *(again["doubtful"] or [])] or None,
    }


def _compute_unread_s(kind: str, series: list[Series], spans: dict[str, Window]) -> float | None:
    """Gap of a kind that does not count although some host has a sensor of it: the whole window; else None."""
    if any(each.kind == kind for each in series) or kind == "node":
        return max((end - begin for begin, end in spans.values()), default=0.0)
    return None


def _sum_component(devices: list[Series], spans: dict[str, Window], rate_hz: float, kind: str) -> dict[str, Any]:
    without = sorted(set(spans) - {device.host for device in devices})
    untold = sorted({device.host for device in devices} - set(spans))
    if untold and not without:  # nothing tells when the run was there, and without it the sum would be too low
        gap = max((end - begin for begin, end in spans.values()), default=None)
        return {**NOTHING, "gap_s": gap, "reason": f"no phase of the run on {', '.join(untold)}, whose {kind} was read"}
    if without:
        # Where other hosts have one, it is a gap as long as the window: nothing else may stand for a node's sensor.
        gap = max(spans[host][1] - spans[host][0] for host in without) if devices else None
        return {**NOTHING, "gap_s": gap, "reason": f"no {kind} sensor on {', '.join(without)}"}
    parts = [energy.compute_energy(device, *spans[device.host], rate_hz) for device in devices]
    return {
        "energy_j": _add_up(part.best_j for part in parts),
        "trapezoid_j": _add_up(part.trapezoid_j for part in parts),
        "one_hz_j": _add_up(part.one_hz_j for part in parts),
        "gap_s": max(part.gap_s for part in parts),
        # First of devices without energy: others may only lack the integral of their power.
        "reason": next(
            (part.reason for part in sorted(parts, key=lambda part: part.best_j is not None) if part.reason), None
        ),
        "doubtful": [
            {"host": device.host, "device": device.name, **asdict(part.doubt)}
            for device, part in zip(devices, parts, strict=True)
            if part.doubt
        ]
        or None,
    }


def _add_up(parts: Iterable[float | None]) -> float | None:
    """The sum, or None if a part is missing."""
    total: float = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _make_power(
    energies: dict[str, Any],
    windows: Windows,
    machine: dict[str, Any],
    ranks: int,
    source: str | None,
    absent: str | None,
) -> dict[str, Any]:
    whole = energies.get(RUN, dict.fromkeys(KINDS, NOTHING))
    per_gpu, why = _select_gpu_energy(whole, machine)
    one_hz, _ = _select_gpu_energy(whole, machine, "one_hz_j")
    training, _ = _select_gpu_energy(energies.get("train", dict.fromkeys(KINDS, NOTHING)), machine)
    if per_gpu is not None:
        absent, why = None, _explain_no_one_hz(whole) if one_hz is None else None
    any_energy = any(part["energy_j"] is not None for part in whole.values())
    return {
        "source": source if per_gpu is not None else None,
        "reason": "; ".join(dict.fromkeys(filter(None, [absent, why]))) or None,
        "power_per_gpu_w": _compute_mean_power(per_gpu, windows, RUN, ranks),
        "power_per_gpu_training_w": _compute_mean_power(training, windows, "train", ranks),
        "power_per_gpu_one_hz_w": _compute_mean_power(one_hz, windows, RUN, ranks),
        "energy_per_gpu_j": None if per_gpu is None else per_gpu / ranks,
        "energy_per_gpu_one_hz_j": None if one_hz is None else one_hz / ranks,
        "energy_job_j": _compute_job_energy(whole, machine),
        "energy_window_s": run_windows.compute_length(windows, RUN) if any_energy else None,
        "energy_by_phase_j": {
            phase: _compute_job_energy(energies[phase], machine) for phase in PHASES if phase in energies
        },
        "gpu_utilisation_pct": None,
        "gpu_memory_mb": None,
        "whole_run": None,
        "components": whole,
        "phases": {phase: energies[phase] for phase in PHASES if phase in energies},
    }


def _select_gpu_energy(
    component: dict[str, Any], machine: dict[str, Any], what: str = "energy_j"
) -> tuple[float | None, str | None]:
    """(energy of all GPUs of the job, None), or (None, the reason).

    On machines without GPUs a rank is a node in the paper (Theta): then it is the energy of the nodes.
    """
    if machine["gpus_per_rank"]:
        return component["gpu"][what], component["gpu"]["reason"]
    kinds = ("node",) if _is_sensed(component["node"]) else ("node", "cpu", "memory")
    reasons = (component[kind]["reason"] for kind in kinds if component[kind][what] is None)
    return _compute_node_energy(component, what), "; ".join(dict.fromkeys(filter(None, reasons))) or None


def _explain_no_one_hz(component: dict[str, Any]) -> str | None:
    """Why a counter's energy has no values at 1 Hz beside it, for which power must be read; None if it has no power."""
    parts = [part for part in component.values() if part["energy_j"] is not None and part["one_hz_j"] is None]
    return next((f"values at 1 Hz: {part['reason']}" for part in parts if part["reason"]), None)


def _compute_node_energy(component: dict[str, Any], what: str = "energy_j") -> float | None:
    """Energy of nodes without GPUs: from the node sensor; where there is none, CPU plus memory if both are measured."""
    if _is_sensed(component["node"]):
        return component["node"][what]
    return _add_up(component[kind][what] for kind in ("cpu", "memory"))


def _compute_job_energy(component: dict[str, Any], machine: dict[str, Any]) -> float | None:
    """Energy of everything that the job used, or None if a part of it is not measured."""
    if _is_sensed(component["node"]) or not machine["gpus_per_rank"]:
        return _compute_node_energy(component)
    return _add_up(component[kind]["energy_j"] for kind in ("gpu", "cpu", "memory"))


def _is_sensed(part: dict[str, Any]) -> bool:
    """Whether a kind of device has a sensor, also if it gave no energy: then nothing else may stand for it."""
    return part["gap_s"] is not None


def _compute_mean_power(joules: float | None, windows: Windows, name: str, ranks: int) -> float | None:
    """Mean power per rank over a window."""
    seconds = run_windows.compute_length(windows, name)
    return None if joules is None or seconds == 0 else joules / ranks / seconds
