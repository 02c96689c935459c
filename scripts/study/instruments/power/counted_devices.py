"""Which devices' readings count: one sensor for each kind of device, and the GPUs that the ranks used.

Our own ranks choose their GPU themselves. A program is told its local rank, and may choose another GPU, or compute on
cores: then the energy of an idle GPU would be told as the run's. The evidence is in ``background.csv``: on which GPUs
NVML showed the run's processes. Where it showed no process at all, as in many containers, a GPU that ran kernels counts
as used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from study.core import validation
from study.core.csv_columns import read_columns
from study.core.csv_files import NAME, TEXT, WHOLE
from study.core.files import AnyPath
from study.instruments.disturbance import FILE
from study.instruments.gpus import OWN
from study.instruments.phases import PROGRAM
from study.instruments.power.run_windows import RUN, compute_windows, group_hosts, rename_hosts
from study.instruments.power.telemetry import Series

UNKNOWN = "which GPUs the ranks used cannot be told; see CUDA_VISIBLE_DEVICES in docs/telemetry.md"

USER_COLUMNS = {"end_monotonic_ns": WHOLE, "host": NAME, "gpu_users": TEXT}
Spans = Mapping[str, tuple[float, float]]  # {host: (begin, end) of the program, monotonic seconds}
OF_RANK = ("gpu", "gpu_reason")
# Of metrics.json, what power needs of it.
RANKS = {
    "type": "object",
    "required": ["ranks"],
    "properties": {
        "ranks": {"type": "array", "items": {"properties": {name: {"type": ["string", "null"]} for name in OF_RANK}}},
    },
}


class UsedGpus(NamedTuple):
    """The ranks' GPUs: their UUIDs, with None for an unknown one, empty if the ranks have no GPU.

    fill_nodes: whether the ranks surely use all GPUs of their nodes. why: there is an unknown one, if that is known.
    """

    gpus: set[str | None]
    fill_nodes: bool = False
    why: str | None = None


def choose_series(
    series: list[Series], order: list[str], used: set[str | None], fill_nodes: bool, why: str | None = None
) -> tuple[list[Series], dict[str, str]]:
    """(series that count, {kind: reason why none counts}) of a run.

    series: a list of `Series`. order: the machine's ``power_sensors``; if two sensors read the same kind on a
    host, only the first counts, so that no joule is added twice. used: the UUIDs of the ranks' GPUs; empty if the ranks
    have no GPU. If it contains None, the ranks' GPUs cannot be identified. fill_nodes: whether the ranks use all GPUs
    of their nodes; then a sensor that does not tell GPUs apart counts too. why: the ranks' GPUs cannot be identified.
    """
    counting = keep_first_sensor_per_kind(series, order)
    by_uuid = [each for each in counting if each.sensor == "nvml"]
    if used and not by_uuid and not fill_nodes:
        return [each for each in counting if each.kind != "gpu"], {
            "gpu": "no sensor tells GPUs apart (nvml), and the ranks may not have used all GPUs of their nodes"
        }
    if not used or not by_uuid:
        return counting, {}
    others = [each for each in counting if each.sensor != "nvml"]
    if None in used:
        return others, {"gpu": why or UNKNOWN}
    read = {each.name for each in by_uuid}
    missing = sorted(gpu for gpu in used if gpu is not None and gpu not in read)
    if missing:
        return others, {"gpu": f"no readings of GPU {missing[0]}, which a rank used"}
    return [*others, *(each for each in by_uuid if each.name in used)], {}


def keep_first_sensor_per_kind(series: list[Series], order: list[str]) -> list[Series]:
    """The devices of each kind on a host that the first sensor of ``order`` reads; arguments as of `choose_series`."""
    first: dict[tuple[str, str], str] = {}
    for each in sorted(series, key=lambda each: order.index(each.sensor) if each.sensor in order else len(order)):
        first.setdefault((each.host, each.kind), each.sensor)
    return [each for each in series if first[each.host, each.kind] == each.sensor]


def keep_rank_devices(series: list[Series], order: list[str], used: set[str | None]) -> list[Series]:
    """The devices whose power over time is a run's, all GPUs if the ranks' own are unknown; as of `choose_series`."""
    counting = keep_first_sensor_per_kind(series, order)
    is_known = bool(used) and None not in used
    return [each for each in counting if not is_known or each.sensor != "nvml" or each.name in used]


class GpuUsers:
    """The GPUs on which NVML showed processes while a program ran.

    Args:
        folder: the run's directory.
        spans: when the program ran; of a host without, all rows count.
        hosts: {host: the first of the hosts that are the same machine}, as `spans` names it.

    Attributes:
        own: UUIDs of GPUs with a process of the run at some moment.
        others: of GPUs with processes of others only, at some moment.
    """

    def __init__(self, folder: AnyPath, spans: Spans, hosts: Mapping[str, str]) -> None:
        every = list(_read_gpu_users(Path(folder) / FILE, spans, hosts))
        self.own = {uuid for uuid, whose in every if whose == OWN}
        self.others = {uuid for uuid, whose in every if whose != OWN}


def explain_doubtful_gpus(used: Collection[str], users: GpuUsers, series: Iterable[Series], spans: Spans) -> str | None:
    """Why the energy of the ranks' GPUs is not the run's; None if there is evidence that it is.

    used: the UUIDs of the ranks' GPUs. series: of the GPUs. spans: as of `GpuUsers`.
    """
    if stray := sorted(users.own - set(used)):
        return (
            f"a process of the run was on GPU {stray[0]}, which is no rank's: a rank should use the visible GPU of its "
            "LOCAL_RANK; correct the program, or CUDA_VISIBLE_DEVICES under environment in the machine's file"
        )
    read = {each.name: each for each in series}
    for uuid in sorted(set(used) - users.own):
        if uuid in users.others:
            return (
                f"NVML showed processes of others on GPU {uuid}, a rank's, and never one of the run (also under MPS, "
                "of which it shows the server)"
            )
        if uuid in read and not _has_run_kernels(read[uuid], spans):
            return (
                f"GPU {uuid}, a rank's, was not used: NVML showed no process of the run on it, and no utilisation; if "
                "the program computes on cores, take a machine with gpus_per_rank: 0"
            )
    return None


def explain_uncounted_gpus(users: GpuUsers) -> str | None:
    """Why the energy of a run on a machine without GPUs would be too low, or None."""
    if not users.own:
        return None
    return (
        f"a process of the run was on GPU {min(users.own)}, but gpus_per_rank in the machine's file is 0: take a "
        "machine with gpus_per_rank: 1"
    )


def _read_gpu_users(path: Path, spans: Spans, hosts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(UUID, whose processes it had), of each GPU with processes at the end of each row within the program's time."""
    if not path.exists():
        return
    rows = read_columns(path, USER_COLUMNS)
    for at_ns, host, users in zip(rows["end_monotonic_ns"], rows["host"], rows["gpu_users"], strict=True):
        begin, end = spans.get(hosts.get(host, host), (float("-inf"), float("inf")))
        if users and begin <= at_ns / 1e9 <= end:
            for each in users.split(", "):
                uuid, _, whose = each.rpartition(" ")
                yield uuid, whose


def _has_run_kernels(gpu: Series, spans: Spans) -> bool:
    """Whether NVML told a utilisation above 0 while the program ran."""
    begin, end = spans.get(gpu.host, (float("-inf"), float("inf")))
    if gpu.utilization_pct is None:
        return False
    inside = (gpu.seconds >= begin) & (gpu.seconds <= end)
    return bool((gpu.utilization_pct[inside] > 0).any())  # NaN is not


def find_used_gpus(
    folder: Path, machine: dict[str, Any], series: list[Series], edges: Iterable[dict[str, Any]]
) -> UsedGpus:
    """The ranks' GPUs; of a command, unknown ones where there is no evidence that it used these and no others.

    series: of all devices. edges: of the run's phases.
    """
    by_uuid = [each for each in series if each.sensor == "nvml"]
    if not machine["gpus_per_rank"] and not by_uuid:
        return UsedGpus(set())
    metrics = validation.load_valid_json(folder / "metrics.json", RANKS)
    ranks, used = metrics["ranks"], UsedGpus(set())
    if machine["gpus_per_rank"]:
        # On hosts, ranks_per_node is the most ranks of this run on one, and nothing tells how many GPUs they have.
        fill_nodes = not machine.get("hosts") and len(ranks) % machine["ranks_per_node"] == 0
        fill_nodes &= _count_most_gpus(series, machine["power_sensors"]) <= machine["ranks_per_node"]
        why = next((rank["gpu_reason"] for rank in ranks if rank.get("gpu_reason")), None)
        used = UsedGpus({rank.get("gpu") for rank in ranks}, fill_nodes, why)
    return _check_by_evidence(used, by_uuid, folder, edges) if PROGRAM in metrics and by_uuid else used


def _count_most_gpus(series: list[Series], order: list[str]) -> int:
    """The most GPUs that were read on one host: more than its ranks, and some are not theirs.

    A device may stand for several GPUs, such as a module of two. order: as of `choose_series`.
    """
    hosts = Counter(each.host for each in keep_first_sensor_per_kind(series, order) if each.kind == "gpu")
    return max(hosts.values(), default=0)


def _check_by_evidence(used: UsedGpus, gpus: list[Series], folder: Path, edges: Iterable[dict[str, Any]]) -> UsedGpus:
    """The GPUs of a command's ranks: as they should be, or unknown ones, with the reason.

    gpus: those that were read by UUID. The rest as of `find_used_gpus`.
    """
    if None in used.gpus:
        return used
    hosts = group_hosts(folder)
    windows = compute_windows(rename_hosts(edges, hosts))
    spans = {host: span for (host, window), span in windows.items() if window == RUN}
    users = GpuUsers(folder, spans, hosts)
    uuids = {gpu for gpu in used.gpus if gpu is not None}
    doubt = (
        explain_doubtful_gpus(uuids, users, keep_each_once(gpus, hosts), spans)
        if uuids
        else explain_uncounted_gpus(users)
    )
    return used._replace(gpus={None}, why=doubt) if doubt else used


def add_gpus(machine: dict[str, Any], used: UsedGpus) -> dict[str, Any]:
    """The machine's settings; with GPUs of the ranks where a command used some, whatever its file says."""
    return machine | {"gpus_per_rank": 1} if used.gpus and not machine["gpus_per_rank"] else machine


def keep_each_once(series: list[Series], hosts: Mapping[str, str]) -> list[Series]:
    """Keep each device of each machine once, as read by the sampler that read it for longest; a GPU by UUID."""
    longest: dict[tuple[str, str, str, str], Series] = {}
    for each in series:
        host = hosts.get(each.host, each.host)
        key = "" if each.name.startswith("GPU-") else host, each.sensor, each.kind, each.name
        if key not in longest or np.ptp(each.seconds) > np.ptp(longest[key].seconds):
            longest[key] = replace(each, host=host)
    return list(longest.values())
