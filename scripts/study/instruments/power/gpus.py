"""Which physical GPU a rank uses: the NVML UUID of the GPU that CUDA shows to the rank."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors.nvml import handles, is_partitioned, library, uuid_of

NO_DEVICE = ("", "-1", "NoDevFiles", "none")  # the last two: batch systems, to jobs without a GPU


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


def _gpu(nvml: Any, handle: Any) -> tuple[str | None, bool]:
    """(UUID of a GPU, whether it is unclear what of it CUDA shows); the UUID is None if the GPU is lost."""
    uuid = None
    try:
        uuid = uuid_of(nvml, handle)
        return uuid, is_partitioned(nvml, handle)
    except nvml.NVMLError:
        return uuid, True
