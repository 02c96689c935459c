"""Which physical GPU a rank uses: the NVML UUID of the GPU that CUDA shows to the rank."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors.nvml import handles, is_partitioned, library, uuid_of

NO_DEVICE = ("", "-1", "NoDevFiles", "none")  # the last two: batch systems, to jobs without a GPU


class OfRank(NamedTuple):
    """The GPU of a rank: its UUID, or None with the reason. Both are None for a rank without a GPU."""

    uuid: str | None = None
    reason: str | None = None


def visible(variables: Mapping[str, str] = os.environ, nvml: Any = None) -> Sequence[str | None] | None:
    """The UUIDs of the GPUs that CUDA shows to this process, in CUDA's order; None for one that cannot be identified.

    That is also a GPU in MIG mode, however it is named: CUDA shows an instance of it, and its power is of all of them.

    variables: the environment; its ``CUDA_VISIBLE_DEVICES`` holds numbers or (shortened) UUIDs. CUDA numbers GPUs as
    NVML does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, which the launch sets. Returns None if there is no NVML.
    """
    try:
        nvml = nvml or library()
    except Unavailable:
        return None
    try:
        gpus = [_gpu(nvml, handle) if error is None else (None, True) for _, handle, error in handles(nvml)]
    except nvml.NVMLError:
        return None
    shown = variables.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        of_mig = "MIG-" in variables.get("NVIDIA_VISIBLE_DEVICES", "")  # a container was given an instance
        return [None if of_mig or is_unclear else uuid for uuid, is_unclear in gpus]
    found: list[str | None] = []
    for entry in (part.strip() for part in shown.split(",")):
        if entry in NO_DEVICE or (entry.isdigit() and int(entry) >= len(gpus)):
            break  # CUDA ignores all entries from an invalid one on
        named = [gpus[int(entry)]] if entry.isdigit() else {gpu for gpu in gpus if (gpu[0] or "").startswith(entry)}
        uuid, is_unclear = next(iter(named)) if len(named) == 1 else (None, True)
        found.append(None if is_unclear else uuid)
    return found


def place_of(local_rank: int, number: int) -> int | None:
    """Which of the GPUs that a process sees is a rank's, from 0; None if there is none for it.

    A launcher such as jsrun may show each rank only its own GPU. number: of the GPUs that the process sees.
    """
    if not number or 1 < number <= local_rank:
        return None
    return 0 if number == 1 else local_rank


def of_ranks(shown: Sequence[str | None] | None, local_ranks: Iterable[int]) -> list[OfRank]:
    """The GPU of each rank of a program that is not ours: by convention the one of its local rank.

    shown: as `visible` tells it, of the program's environment.
    """
    return [_of_rank(shown, local_rank) for local_rank in local_ranks]


def _of_rank(shown: Sequence[str | None] | None, local_rank: int) -> OfRank:
    if shown is None:
        return OfRank(reason="NVML lists no GPUs here, so the ranks' own cannot be identified")
    place = place_of(local_rank, len(shown))
    if place is None:
        number = f"{len(shown)} GPUs" if shown else "no GPU"
        return OfRank(
            reason=f"CUDA shows {number} to the program, too few for the node's rank {local_rank}, from 0; correct "
            "CUDA_VISIBLE_DEVICES, ranks_per_node in the machine's file, or what its jobs ask for"
        )
    if shown[place] is None:
        return OfRank(
            reason=f"the GPU of the node's rank {local_rank} is in MIG mode, is lost, or cannot be identified; name "
            "whole GPUs in CUDA_VISIBLE_DEVICES"
        )
    return OfRank(shown[place])


def _gpu(nvml: Any, handle: Any) -> tuple[str | None, bool]:
    """(UUID of a GPU, whether it is unclear what of it CUDA shows); the UUID is None if the GPU is lost."""
    uuid = None
    try:
        uuid = uuid_of(nvml, handle)
        return uuid, is_partitioned(nvml, handle)
    except nvml.NVMLError:
        return uuid, True
