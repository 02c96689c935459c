"""A run's power and energy for the run record, computed from its telemetry and its phases.

The run's window begins with the first rank's ``load`` and ends with the last rank's ``evaluate``; of a command, it is
from the start of the user's program to its end. A further window is
that of the run's processes (`PROCESSES`), start-up included. All windows are by each node's own monotonic clock.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from study.core import checked
from study.core.files import AnyPath
from study.instruments import phases
from study.instruments.phases import PHASES, PROGRAM, compute_zeros_ns
from study.instruments.power import counted_devices, energy, telemetry
from study.instruments.power.counted_devices import choose_series, keep_first_sensor_per_kind, keep_rank_devices
from study.instruments.power.plausibility import KINDS
from study.instruments.power.readings import MODELLED
from study.instruments.power.telemetry import Series, read_series

RUN = "run"
PROCESSES = "processes"  # of a node: from its first process's start, with its sampler running, to its last one's end
NO_GPUS = "ranks have no GPUs of their own, and other sensors measure all ranks of a node together"
OF_RANK = ("gpu", "gpu_reason")
# Of metrics.json, what power needs of it.
RANKS = {
    "type": "object",
    "required": ["ranks"],
    "properties": {
        "ranks": {"type": "array", "items": {"properties": {name: {"type": ["string", "null"]} for name in OF_RANK}}},
    },
}


class _Used(NamedTuple):
    """The ranks' GPUs: their UUIDs, with None for an unknown one, empty if the ranks have no GPU.

    fill_nodes: whether the ranks surely use all GPUs of their nodes. why: why there is an unknown one, if that is told.
    See `study.instruments.power.counted_devices`.
    """

    gpus: set[str | None]
    fill_nodes: bool = False
    why: str | None = None


Window = tuple[float, float]  # begin, end: monotonic seconds of a host
Windows = dict[tuple[str, str], Window]  # by host and name; of a phase's later times ``train#1``, ``train#2``, ...
AGAIN = "#"

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
    hosts = _group_hosts(folder)
    on_machines = list(_rename_hosts(edges, hosts))
    windows = _compute_windows(on_machines)
    if not (folder / "telemetry.csv").exists():
        return make_unmeasured(machine, gpus, absent or "the sampler wrote nothing")
    if not any(name == RUN for _, name in windows) or not (folder / "metrics.json").exists():  # rank 0 writes it last
        return make_unmeasured(machine, gpus, "the run did not come to its end")
    series = _keep_each_once(read_series(folder / "telemetry.csv"), hosts)
    if not series:
        return make_unmeasured(machine, gpus, absent or "telemetry.csv has no reading")
    of_processes, why_none = _compute_process_windows(folder, _find_begins(on_machines, windows), hosts)
    windows |= of_processes
    used = _find_gpus(folder, machine, series, edges)
    machine = _add_gpus(machine, used)
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
    hosts = _group_hosts(folder)
    series = read_series(folder / "telemetry.csv") if (folder / "telemetry.csv").exists() else []
    series = _keep_each_once(series, hosts)
    windows = _compute_windows_until(list(_rename_hosts(edges, hosts)), wall_ns, ended)
    if not series or not windows:
        absent = _explain_absent_sensors(folder, machine)
        return None, absent or f"{'no phase load' if series else 'no reading'} in the run's files"
    used = _find_gpus(folder, machine, series, edges)
    machine = _add_gpus(machine, used)
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
        window = next((span for (_, name), span in _compute_windows(of_rank).items() if name == RUN), None)
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
    used = _find_gpus(Path(folder), machine, series, phases.read_edges(path) if path.exists() else [])
    modelled = [each for each in series if each.sensor == MODELLED]
    return [*keep_rank_devices(measured, machine["power_sensors"], used.gpus), *modelled]


def _find_begins(edges: list[dict[str, Any]], windows: Windows) -> dict[str, float]:
    """{host: monotonic s at which its first rank began phase startup}, which a program without phases does not end."""
    begins = {host: begin for (host, phase), (begin, _) in windows.items() if phase == "startup"}
    edges_of_begins = [edge for edge in edges if edge["phase"] == "startup" and edge["edge"] == "begin"]
    for edge in sorted(edges_of_begins, key=lambda edge: -edge["monotonic_ns"]):
        begins[edge["host"]] = edge["monotonic_ns"] / 1e9
    return begins


def _compute_process_windows(
    folder: Path, began: Mapping[str, float], hosts: Mapping[str, str]
) -> tuple[Windows, str | None]:
    """({(host, `PROCESSES`): (begin, end)} of all nodes, None), or ({}, the reason why it is not known of one of them).

    It begins with the node's first process, or with the first reading of the sampler that this process starts before
    anything else; it ends with the node's last process. Nothing of it depends on how long the sampler lived.
    """
    by_host: dict[str, list[dict[str, Any]]] = {}
    for each in telemetry.read_host_samplers(folder):
        by_host.setdefault(hosts.get(each.get("host", ""), each.get("host", "")), []).append(each)
    windows: Windows = {}
    for host, started in began.items():
        of_host = by_host.get(host, [])
        begins = [each["begin_monotonic_ns"] / 1e9 for each in of_host if "begin_monotonic_ns" in each]
        ends = [each["processes_end_monotonic_ns"] / 1e9 for each in of_host if "processes_end_monotonic_ns" in each]
        if not begins or len(begins) < len(of_host) or not ends:
            return {}, f"on {host} it is not known when the sampler began or when the run's processes ended"
        stops = [each["end_monotonic_ns"] / 1e9 for each in of_host if "end_monotonic_ns" in each]
        windows[host, PROCESSES] = max(started, *begins), min([max(ends), *stops])
    return windows, None if windows else "no phase startup in the run's files"


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


def _compute_windows_until(edges: list[dict[str, Any]], wall_ns: int, ended: tuple[str, int]) -> Windows:
    """{(host, `RUN`): (begin of its first ``load``, ``wall_ns``)}, in monotonic seconds of each host; as above."""
    until: Windows = {}
    windows = _compute_windows(edges)
    for (host, name), (begin, _) in windows.items():
        if name == (PROGRAM if (host, PROGRAM) in windows else "load"):
            edge = next(each for each in edges if each["host"] == host)
            until_ns = wall_ns - edge["wall_ns"] + edge["monotonic_ns"]
            until[host, RUN] = begin, (ended[1] if ended[0] == host else until_ns) / 1e9
    return until


def _compute_energies(
    series: list[Series], windows: Windows, folder: Path, machine: dict[str, Any], used: _Used
) -> tuple[dict[str, Any], str]:
    """(the energies of `_sum_by_window`, whether they are measured or modelled)."""
    measured = [each for each in series if each.sensor != MODELLED]
    series, reasons = choose_series(measured or series, machine["power_sensors"], *used)
    reasons = _explain_lost_parts(folder, series, bool(used.gpus)) | reasons
    return _sum_by_window(series, windows, machine["sampling_hz"], reasons), "measured" if measured else MODELLED


def _group_hosts(folder: Path) -> dict[str, str]:
    """{host: the first of the hosts that are the same machine}: they have one meter, which counts once."""
    of_hosts = telemetry.read_host_samplers(folder)
    boots = [(each.get("host"), each.get("boot_id")) for each in of_hosts]
    if (folder / "provenance.json").exists():
        hosts = checked.load_json(folder / "provenance.json", "provenance").get("hosts", [])
        boots += [(host["hostname"], host["boot_id"]) for host in hosts]
    same, first = telemetry.group_boots(of_hosts), dict[str, str]()
    return {host: first.setdefault(same.get(boot, boot), host) for host, boot in boots if host and boot}


def _rename_hosts(edges: Iterable[dict[str, Any]], hosts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The edges, each with its machine's first host; hosts of one machine have one monotonic clock."""
    return (edge | {"host": hosts.get(edge["host"], edge["host"])} for edge in edges)


def _keep_each_once(series: list[Series], hosts: Mapping[str, str]) -> list[Series]:
    """Keep each device of each machine once, as read by the sampler that read it for longest; a GPU by UUID."""
    longest: dict[tuple[str, str, str, str], Series] = {}
    for each in series:
        host = hosts.get(each.host, each.host)
        key = "" if each.name.startswith("GPU-") else host, each.sensor, each.kind, each.name
        if key not in longest or np.ptp(each.seconds) > np.ptp(longest[key].seconds):
            longest[key] = replace(each, host=host)
    return list(longest.values())


def _explain_lost_parts(folder: Path, series: list[Series], by_uuid: bool) -> dict[str, str]:
    """{kind: reason} of kinds of which a part could not be read: the sum of the others would be too low.

    series: those that count. by_uuid: whether only the ranks' own GPUs count, whose readings are looked for elsewhere.
    """
    hosts = _group_hosts(folder)
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
    series: list[Series], windows: Windows, machine: dict[str, Any], used: _Used
) -> tuple[float | None, float | None]:
    """(mean utilisation of the ranks' GPUs while they train (%), the most memory in use on one), or None.

    Of a command that tells no phase train, utilisation is of its whole program.
    """
    counting, _ = choose_series(series, machine["power_sensors"], *used)
    name = "train" if any(window == "train" for _, window in windows) else PROGRAM
    spans: dict[str, list[Window]] = {}
    for (host, window), span in windows.items():
        if _phase_of(window) == name:
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


def _find_gpus(folder: Path, machine: dict[str, Any], series: list[Series], edges: Iterable[dict[str, Any]]) -> _Used:
    """The ranks' GPUs; of a command, unknown ones where there is no evidence that it used these and no others.

    series: of all devices. edges: of the run's phases.
    """
    by_uuid = [each for each in series if each.sensor == "nvml"]
    if not machine["gpus_per_rank"] and not by_uuid:
        return _Used(set())
    metrics = checked.load_json(folder / "metrics.json", RANKS)
    ranks, used = metrics["ranks"], _Used(set())
    if machine["gpus_per_rank"]:
        # On hosts, ranks_per_node is the most ranks of this run on one, and nothing tells how many GPUs they have.
        fill_nodes = not machine.get("hosts") and len(ranks) % machine["ranks_per_node"] == 0
        fill_nodes &= _count_most_gpus(series, machine["power_sensors"]) <= machine["ranks_per_node"]
        why = next((rank["gpu_reason"] for rank in ranks if rank.get("gpu_reason")), None)
        used = _Used({rank.get("gpu") for rank in ranks}, fill_nodes, why)
    return _check_by_evidence(used, by_uuid, folder, edges) if PROGRAM in metrics and by_uuid else used


def _count_most_gpus(series: list[Series], order: list[str]) -> int:
    """The most GPUs that were read on one host: more than its ranks, and some are not theirs.

    A device may stand for several GPUs, such as a module of two. order: as of `choose_series`.
    """
    hosts = Counter(each.host for each in keep_first_sensor_per_kind(series, order) if each.kind == "gpu")
    return max(hosts.values(), default=0)


def _check_by_evidence(used: _Used, gpus: list[Series], folder: Path, edges: Iterable[dict[str, Any]]) -> _Used:
    """The GPUs of a command's ranks: as they should be, or unknown ones, with the reason.

    gpus: those that were read by UUID. The rest as of `_find_gpus`.
    """
    if None in used.gpus:
        return used
    hosts = _group_hosts(folder)
    windows = _compute_windows(_rename_hosts(edges, hosts))
    spans = {host: span for (host, window), span in windows.items() if window == RUN}
    users = counted_devices.GpuUsers(folder, spans, hosts)
    uuids = {gpu for gpu in used.gpus if gpu is not None}
    doubt = (
        counted_devices.explain_doubtful_gpus(uuids, users, _keep_each_once(gpus, hosts), spans)
        if uuids
        else counted_devices.explain_uncounted_gpus(users)
    )
    return used._replace(gpus={None}, why=doubt) if doubt else used


def _add_gpus(machine: dict[str, Any], used: _Used) -> dict[str, Any]:
    """The machine's settings; with GPUs of the ranks where a command used some, whatever its file says."""
    return machine | {"gpus_per_rank": 1} if used.gpus and not machine["gpus_per_rank"] else machine


def _compute_windows(edges: Iterable[dict[str, Any]]) -> Windows:
    """{(host, window): (begin, end)}, monotonic seconds: the run, and each phase from its first to its last rank.

    A phase that the ranks begin again, as a program may, has a window for each time, without what is between them. A
    host whose processes do not tell a phase, such as one of a parameter server's workers, has that of the others.
    """
    edges = list(edges)
    zeros = compute_zeros_ns(edges)
    windows = _compute_phase_windows(edges, zeros)
    for host in {host for host, _ in windows}:
        if (host, PROGRAM) in windows:  # it may tell no phases, or on one host only
            windows[host, RUN] = windows[host, PROGRAM]
        elif (host, "load") in windows and (host, "evaluate") in windows:
            last = max(
                end for (other, name), (_, end) in windows.items() if other == host and _phase_of(name) == "evaluate"
            )
            windows[host, RUN] = windows[host, "load"][0], last
    return windows | _fill_missing_windows(windows, zeros)


def _compute_phase_windows(edges: Iterable[dict[str, Any]], zeros: Mapping[str, int]) -> Windows:
    """The windows of the phases: of the first time under the phase's name, of later ones with their number.

    Times that overlap, where a rank is in the phase again before another one has left it, are one. zeros: as below.
    """
    begun: dict[str, dict[int, dict[str, tuple[float, float | None]]]] = {}  # by phase, time and host
    ended: Counter[tuple[int, str]] = Counter()  # how many times a rank has left a phase
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        host, phase, at = edge["host"], edge["phase"], edge["monotonic_ns"] / 1e9
        spans = begun.setdefault(phase, {}).setdefault(ended[edge["rank"], phase], {})
        begin, end = spans.get(host, (at, None))
        spans[host] = (min(begin, at), end) if edge["edge"] == "begin" else (begin, max(end or at, at))
        ended[edge["rank"], phase] += edge["edge"] == "end"
    windows: Windows = {}
    for phase, times in begun.items():
        number, latest = -1, -np.inf
        for _, spans in sorted(times.items()):
            whole = {host: (begin, end) for host, (begin, end) in spans.items() if end is not None}
            first = min((begin + zeros[host] / 1e9 for host, (begin, _) in whole.items()), default=np.inf)
            number += first > latest and bool(whole)
            latest = max([latest, *(end + zeros[host] / 1e9 for host, (_, end) in whole.items())])
            for host, (begin, end) in whole.items():
                before = windows.get((host, _name_window(phase, number)), (begin, end))
                windows[host, _name_window(phase, number)] = min(before[0], begin), max(before[1], end)
    return windows


def _name_window(phase: str, time: int) -> str:
    return f"{phase}{AGAIN}{time}" if time > 0 else phase


def _phase_of(window: str) -> str:
    return window.partition(AGAIN)[0]


def _fill_missing_windows(windows: Windows, zeros: Mapping[str, int]) -> Windows:
    """The windows that hosts lack and others have, from the first begin to the last end, by the wall clocks.

    A device draws power whether or not the processes of its host tell a phase: without it, the sum would be too low.
    zeros: of each host of the run, see `study.instruments.phases.compute_zeros_ns`.
    """
    missing: Windows = {}
    for name in {name for _, name in windows}:
        spans = {host: span for (host, window), span in windows.items() if window == name}
        for host, zero in zeros.items():
            if host not in spans:
                moved = [[at + (zeros[other] - zero) / 1e9 for at in span] for other, span in spans.items()]
                missing[host, name] = min(begin for begin, _ in moved), max(end for _, end in moved)
    return missing


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
        first, again = energies[_phase_of(name)], energies.pop(name)
        energies[_phase_of(name)] = {kind: _add_components(first[kind], again[kind]) for kind in KINDS}
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
        "energy_window_s": _compute_length(windows, RUN) if any_energy else None,
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
    seconds = _compute_length(windows, name)
    return None if joules is None or seconds == 0 else joules / ranks / seconds


def _compute_length(windows: Windows, name: str) -> float:
    """Length of a window, s: that of the longest host, since all wait for it; 0 without such a window."""
    lengths: dict[str, float] = {}
    for (host, window), (begin, end) in windows.items():
        if _phase_of(window) == name:
            lengths[host] = lengths.get(host, 0.0) + end - begin
    return max(lengths.values(), default=0)
