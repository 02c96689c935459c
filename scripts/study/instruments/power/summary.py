"""A run's power and energy, from its telemetry and its phases, as the run record holds them.

The run's window begins with the first rank's ``load`` and ends with the last rank's ``evaluate``: the sampler is
started once the ranks are there (`study.instruments.power.telemetry`).
"""

import json
from pathlib import Path

from study.instruments.phases import PHASES
from study.instruments.power import energy
from study.instruments.power.counted import counted
from study.instruments.power.readings import KINDS, MODELLED

RUN = "run"
NOTHING = {"energy_j": None, "trapezoid_j": None, "one_hz_j": None, "gap_s": None, "reason": None}


def summarize(folder, run, edges):
    """The run record's ``power``, a dict; ``config/schemas/record.schema.yaml`` has its keys.

    folder: the run's directory. run: the content of its ``run.yaml``. edges: of its phases (`phases.read`).
    """
    folder = Path(folder)
    sensors = folder / "sensors.json"
    hosts = json.loads(sensors.read_text(encoding="utf-8")) if sensors.exists() else []
    absent = _absent_sensors(run, hosts)
    windows = _windows(edges)
    if not (folder / "telemetry.csv").exists():
        return _power({}, {}, run, None, absent or "the sampler wrote nothing")
    if not any(name == RUN for _, name in windows):
        return _power({}, {}, run, None, "the run did not come to its end")
    series = energy.read(folder / "telemetry.csv")
    if not series:
        return _power({}, {}, run, None, absent or "telemetry.csv has no reading")
    measured = [each for each in series if each.sensor != MODELLED]
    series, reasons = counted(measured or series, run["machine"]["power_sensors"], _used_gpus(folder, run))
    found = _by_window(series, windows, run["machine"]["sampling_hz"], reasons)
    return _power(found, windows, run, "measured" if measured else MODELLED, absent)


def _absent_sensors(run, hosts):
    """Why sensors that were asked for are not there, or None."""
    if not run["machine"]["power_sensors"]:
        return f"no power sensor is configured for machine {run['machine']['name']}"
    return "; ".join(dict.fromkeys(reason for host in hosts for reason in host["reasons"].values())) or None


def _used_gpus(folder, run):
    """UUIDs of the ranks' GPUs, None among them for one that is not known; see `study.instruments.power.counted`."""
    if not run["machine"]["gpus_per_rank"]:
        return set()
    return {rank["gpu"] for rank in json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["ranks"]}


def _windows(edges):
    """{(host, window): (begin, end)}, monotonic seconds: a phase from its first to its last rank there, and the run."""
    windows = {}
    for edge in edges:
        key, at = (edge["host"], edge["phase"]), edge["monotonic_ns"] / 1e9
        begin, end = windows.get(key, (at, None))
        windows[key] = (min(begin, at), end) if edge["edge"] == "begin" else (begin, max(end or at, at))
    windows = {key: window for key, window in windows.items() if window[1] is not None}
    for host in {host for host, _ in windows}:
        if (host, "load") in windows and (host, "evaluate") in windows:
            windows[host, RUN] = windows[host, "load"][0], windows[host, "evaluate"][1]
    return windows


def _by_window(series, windows, rate_hz, reasons):
    """{window: {kind: energies summed over all hosts' devices of that kind}}."""
    found = {}
    for name in dict.fromkeys(name for _, name in windows):
        spans = {host: span for (host, window), span in windows.items() if window == name}
        found[name] = {
            kind: {**NOTHING, "reason": reasons[kind]}
            if kind in reasons
            else _component([each for each in series if each.kind == kind], spans, rate_hz, kind)
            for kind in KINDS
        }
    return found


def _component(devices, spans, rate_hz, kind):
    without = set(spans) - {device.host for device in devices}
    if without:
        return {**NOTHING, "reason": f"no {kind} sensor on {', '.join(sorted(without))}"}
    parts = [energy.between(device, *spans[device.host], rate_hz) for device in devices if device.host in spans]
    return {
        "energy_j": _total(part.best_j for part in parts),
        "trapezoid_j": _total(part.trapezoid_j for part in parts),
        "one_hz_j": _total(part.one_hz_j for part in parts),
        "gap_s": max(part.gap_s for part in parts),
        "reason": next((part.reason for part in parts if part.reason), None),
    }


def _total(parts):
    """The sum, or None where a part is missing: a total is there only if all its parts are."""
    parts = list(parts)
    return None if any(part is None for part in parts) else sum(parts)


def _power(found, windows, run, source, absent):
    whole, ranks = found.get(RUN, dict.fromkeys(KINDS, NOTHING)), run["parameters"]["gpus"]
    per_gpu, why = _of_the_gpus(whole, run)
    one_hz, _ = _of_the_gpus(whole, run, "one_hz_j")
    training, _ = _of_the_gpus(found.get("train", dict.fromkeys(KINDS, NOTHING)), run)
    return {
        "source": source if per_gpu is not None else None,
        "reason": None if per_gpu is not None else "; ".join(dict.fromkeys(filter(None, [absent, why]))),
        "power_per_gpu_w": _mean_power(per_gpu, windows, RUN, ranks),
        "power_per_gpu_training_w": _mean_power(training, windows, "train", ranks),
        "power_per_gpu_one_hz_w": _mean_power(one_hz, windows, RUN, ranks),
        "energy_per_gpu_j": None if per_gpu is None else per_gpu / ranks,
        "energy_per_gpu_one_hz_j": None if one_hz is None else one_hz / ranks,
        "energy_job_j": _job(whole, run),
        "components": whole,
        "phases": {phase: found[phase] for phase in PHASES if phase in found},
    }


def _of_the_gpus(component, run, what="energy_j"):
    """(energy of all GPUs of the job, None), or (None, why not).

    A rank without a GPU is a node of its own in the paper (Theta): then it is the energy of the nodes, divided evenly.
    """
    if run["machine"]["gpus_per_rank"]:
        return component["gpu"][what], component["gpu"]["reason"]
    return _node(component, what), component["node"]["reason"]


def _node(component, what="energy_j"):
    """Energy of whole nodes: their own sensor's, else CPU and memory where both are measured and there is no GPU."""
    if component["node"][what] is not None:
        return component["node"][what]
    return _total(component[kind][what] for kind in ("cpu", "memory"))


def _job(component, run):
    """Energy of all that the job used, or None where a part of it is not measured."""
    if component["node"]["energy_j"] is not None or not run["machine"]["gpus_per_rank"]:
        return _node(component)
    return _total(component[kind]["energy_j"] for kind in ("gpu", "cpu", "memory"))


def _mean_power(joules, windows, name, ranks):
    """Average power of a rank over a window: the longest host's, since all wait for it."""
    seconds = max((end - begin for (_, window), (begin, end) in windows.items() if window == name), default=0)
    return None if joules is None or seconds == 0 else joules / ranks / seconds
