"""The GPUs of this host as NVML shows them: which one is a rank's, and what slows the run's GPUs down.

The host's sampler asks NVML at the end of each row of ``background.csv`` about throttling, and processes of others. A
GPU is the run's while a process of the run has it. Reference: NVML's nvmlDeviceGetCurrentClocksThrottleReasons and
nvmlDeviceGetComputeRunningProcesses.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors.nvml import import_library, is_partitioned, list_handles, read_uuid

NO_DEVICE = ("", "-1", "NoDevFiles", "none")  # the last two: batch systems, to jobs without a GPU

# NVML's bits of the reasons why a clock is lower than asked for. Idling and clocks that somebody set are none of these.
SLOWED = {0x08: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
          0x80: "power brake"}  # fmt: skip
POWER_CAP = 0x04  # the run's own power reaches the GPU's limit
# Before a run's first kernel, and without a GPU. Also in a container, to which the driver may show no process, and
# under MPS, whose server NVML may show in place of its clients.
UNUSED = "NVML: no process of the run was on a GPU"
OWN, OTHERS = "own", "others"  # whose processes a GPU has
IsOwn = Callable[[int], bool | None]  # of a process id: whether it is the run's; None if this host does not know it


class RankGpu(NamedTuple):
    """The GPU of a rank: its UUID, or None with the reason. Both are None for a rank without a GPU."""

    uuid: str | None = None
    reason: str | None = None


def list_visible_gpus(variables: Mapping[str, str] = os.environ, nvml: Any = None) -> Sequence[str | None] | None:
    """The UUIDs of the GPUs that CUDA shows to this process, in CUDA's order; None for one that cannot be identified.

    That is also a GPU in MIG mode, however it is named: CUDA shows an instance of it, and its power is of all of them.

    variables: the environment; its ``CUDA_VISIBLE_DEVICES`` holds numbers or (shortened) UUIDs. CUDA numbers GPUs as
    NVML does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, which the launch sets. Returns None if there is no NVML.
    """
    try:
        nvml = nvml or import_library()
    except Unavailable:
        return None
    try:
        gpus = [_identify(nvml, handle) if error is None else (None, True) for _, handle, error in list_handles(nvml)]
    except nvml.NVMLError:
        return None
    entries = variables.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        of_mig = "MIG-" in variables.get("NVIDIA_VISIBLE_DEVICES", "")  # a container was given an instance
        return [None if of_mig or is_unclear else uuid for uuid, is_unclear in gpus]
    uuids: list[str | None] = []
    for entry in (part.strip() for part in entries.split(",")):
        if entry in NO_DEVICE or (entry.isdigit() and int(entry) >= len(gpus)):
            break  # CUDA ignores all entries from an invalid one on
        named = [gpus[int(entry)]] if entry.isdigit() else {gpu for gpu in gpus if (gpu[0] or "").startswith(entry)}
        uuid, is_unclear = next(iter(named)) if len(named) == 1 else (None, True)
        uuids.append(None if is_unclear else uuid)
    return uuids


def choose_gpu(local_rank: int, number: int) -> int | None:
    """Choose the rank's GPU among those that its process sees: its number from 0; None if there is none for it.

    A launcher such as jsrun may show each rank only its own GPU. number: of the GPUs that the process sees.
    """
    if not number or 1 < number <= local_rank:
        return None
    return 0 if number == 1 else local_rank


def assign_gpus(visible: Sequence[str | None] | None, local_ranks: Iterable[int]) -> list[RankGpu]:
    """The GPU of each rank of a program that is not ours: by convention the one of its local rank.

    shown: as `list_visible_gpus` tells it, of the program's environment.
    """
    return [_assign_gpu(visible, local_rank) for local_rank in local_ranks]


def _assign_gpu(visible: Sequence[str | None] | None, local_rank: int) -> RankGpu:
    if visible is None:
        return RankGpu(reason="NVML lists no GPUs here, so the ranks' own cannot be identified")
    place = choose_gpu(local_rank, len(visible))
    if place is None:
        number = f"{len(visible)} GPUs" if visible else "no GPU"
        return RankGpu(
            reason=f"CUDA shows {number} to the program, too few for the node's rank {local_rank}, from 0; correct "
            "CUDA_VISIBLE_DEVICES, ranks_per_node in the machine's file, or what its jobs ask for"
        )
    if visible[place] is None:
        return RankGpu(
            reason=f"the GPU of the node's rank {local_rank} is in MIG mode, is lost, or cannot be identified; name "
            "whole GPUs in CUDA_VISIBLE_DEVICES"
        )
    return RankGpu(visible[place])


def _identify(nvml: Any, handle: Any) -> tuple[str | None, bool]:
    """(UUID of a GPU, whether it is unclear what of it CUDA shows); the UUID is None if the GPU is lost."""
    uuid = None
    try:
        uuid = read_uuid(nvml, handle)
        return uuid, is_partitioned(nvml, handle)
    except nvml.NVMLError:
        return uuid, True


class GpuState(NamedTuple):
    """The run's GPUs at one moment; None for what NVML does not tell, with the reason.

    slowed: whether one of them is, by `SLOWED`. capped: by its power limit. shared: whether a process of others has one
    of them. clock_mhz: of the slowest. All are None if the run has none at this moment. users: ``GPU-1 own, GPU-2
    others``, of each GPU with a process; `OWN` if one of them is the run's; without GPUs of which this is not known.
    """

    slowed: bool | None = None
    capped: bool | None = None
    shared: bool | None = None
    clock_mhz: float | None = None
    reason: str = ""
    users: str = ""


class Gpus:
    """The GPUs of this host.

    Args:
        given: (name, NVML's handle) of each.
        nvml: the pynvml module or a replacement for it.
        reason: why there are none.
    """

    def __init__(self, given: Iterable[tuple[str, Any]], nvml: Any, reason: str = "") -> None:
        self._gpus, self._nvml, self._reason = list(given), nvml, reason
        self._uuids = {name: self._read_uuid(handle) for name, handle in self._gpus}

    def _read_uuid(self, handle: Any) -> str | None:
        try:
            return read_uuid(self._nvml, handle)
        except self._nvml.NVMLError:  # of a GPU that is lost
            return None

    def read_state(self, own: IsOwn) -> GpuState:
        """The state of those that the run has."""
        if self._reason:
            return GpuState(reason=self._reason)
        used, shared, users, why = [], False, dict[str, str](), ""
        for name, handle in self._gpus:
            try:
                ids = [each.pid for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            except (self._nvml.NVMLError, AttributeError) as error:
                why = why or f"NVML: {name}: processes: {error}"
                continue
            whose = [own(pid) for pid in ids]
            if None in whose:
                why = why or f"NVML: {name}: process {ids[whose.index(None)]} is not known here (a container?)"
            if any(whose):
                used.append((name, handle))
                shared = shared or not all(whose)
            if (uuid := self._uuids[name]) and (any(whose) or (whose and None not in whose)):
                users[uuid] = OWN if any(whose) else OTHERS
        state = GpuState(reason=why) if why else self._make_state(used, shared) if used else GpuState(reason=UNUSED)
        return state._replace(users=", ".join(f"{uuid} {whose}" for uuid, whose in users.items()))

    def _make_state(self, used: list[tuple[str, Any]], shared: bool) -> GpuState:
        clocks, _ = self._query(used, "nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        reasons, why = self._query(used, "nvmlDeviceGetCurrentClocksThrottleReasons")
        if why:
            return GpuState(None, None, shared, min(clocks, default=None), why)
        slowed = any(each & bit for each in reasons for bit in SLOWED)
        return GpuState(slowed, any(each & POWER_CAP for each in reasons), shared, min(clocks, default=None))

    def _query(self, used: list[tuple[str, Any]], function: str, *arguments: Any) -> tuple[list[Any], str]:
        """(what NVML's function tells of each GPU, why it does not of one)."""
        values, why = [], ""
        for name, handle in used:
            try:
                values.append(getattr(self._nvml, function)(handle, *arguments))
            except (self._nvml.NVMLError, AttributeError) as error:
                why = f"NVML: {name}: {function}: {error}"
        return values, why


def find_gpus(is_asked: bool, nvml: Any = None) -> Gpus:
    """The GPUs that NVML shows on this host. is_asked: whether the machine's ``power_sensors`` have nvml."""
    if not is_asked:
        return Gpus([], None, "power_sensors of the machine's file lacks nvml")
    try:
        nvml = nvml or import_library()
        there = [(name, handle) for name, handle, failed in list_handles(nvml) if failed is None]
    except Unavailable as error:
        return Gpus([], None, str(error))
    except nvml.NVMLError as error:
        return Gpus([], None, f"NVML: {error}")
    return Gpus(there, nvml, "" if there else "NVML: the driver sees no GPU")
