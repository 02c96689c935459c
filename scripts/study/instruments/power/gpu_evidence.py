"""Whether a program that is not ours used the GPUs that its ranks should use, and no others.

Our own ranks choose their GPU themselves. A program is told its local rank, and may choose another GPU, or compute on
cores: then the energy of an idle GPU would be told as the run's. The evidence is in ``background.csv``: on which GPUs
NVML showed the run's processes. Where it showed no process at all, as in many containers, a GPU that ran kernels counts
as used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from study.core.csv_columns import read_columns
from study.core.csv_files import NAME, TEXT, WHOLE
from study.core.files import AnyPath
from study.instruments.disturbance import FILE
from study.instruments.gpu_background import OWN
from study.instruments.power.series import Series

KINDS = {"end_monotonic_ns": WHOLE, "host": NAME, "gpu_users": TEXT}
Spans = Mapping[str, tuple[float, float]]  # {host: (begin, end) of the program, monotonic seconds}


class Users:
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
        every = list(_users(Path(folder) / FILE, spans, hosts))
        self.own = {uuid for uuid, whose in every if whose == OWN}
        self.others = {uuid for uuid, whose in every if whose != OWN}


def doubt(used: Collection[str], users: Users, series: Iterable[Series], spans: Spans) -> str | None:
    """Why the energy of the ranks' GPUs is not the run's; None if there is evidence that it is.

    used: the UUIDs of the ranks' GPUs. series: of the GPUs. spans: as of `Users`.
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
        if uuid in read and not _ran_kernels(read[uuid], spans):
            return (
                f"GPU {uuid}, a rank's, was not used: NVML showed no process of the run on it, and no utilisation; if "
                "the program computes on cores, take a machine with gpus_per_rank: 0"
            )
    return None


def uncounted(users: Users) -> str | None:
    """Why the energy of a run on a machine without GPUs would be too low, or None."""
    if not users.own:
        return None
    return (
        f"a process of the run was on GPU {min(users.own)}, but gpus_per_rank in the machine's file is 0: take a "
        "machine with gpus_per_rank: 1"
    )


def _users(path: Path, spans: Spans, hosts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(UUID, whose processes it had), of each GPU with processes at the end of each row within the program's time."""
    if not path.exists():
        return
    rows = read_columns(path, KINDS)
    for at_ns, host, users in zip(rows["end_monotonic_ns"], rows["host"], rows["gpu_users"], strict=True):
        begin, end = spans.get(hosts.get(host, host), (float("-inf"), float("inf")))
        if users and begin <= at_ns / 1e9 <= end:
            for each in users.split(", "):
                uuid, _, whose = each.rpartition(" ")
                yield uuid, whose


def _ran_kernels(gpu: Series, spans: Spans) -> bool:
    """Whether NVML told a utilisation above 0 while the program ran."""
    begin, end = spans.get(gpu.host, (float("-inf"), float("inf")))
    if gpu.utilization_pct is None:
        return False
    inside = (gpu.seconds >= begin) & (gpu.seconds <= end)
    return bool((gpu.utilization_pct[inside] > 0).any())  # NaN is not
