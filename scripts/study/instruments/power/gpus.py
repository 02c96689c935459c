"""Which physical GPU a rank uses: the NVML UUID of the GPU that CUDA shows to the rank."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from study.instruments.power.sensors.nvml import handles, library, uuid_of


def visible(variables: Mapping[str, str] = os.environ, nvml: Any = None) -> Sequence[str | None] | None:
    """The UUIDs of the GPUs that CUDA shows to this process, in CUDA's order; None for one that cannot be identified.

    variables: the environment; its ``CUDA_VISIBLE_DEVICES`` holds numbers or (shortened) UUIDs. CUDA numbers GPUs as
    NVML does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, which the launch sets. Returns None if there is no NVML.
    """
    nvml = nvml or library()
    try:
        uuids = [uuid_of(nvml, handle) for handle in handles(nvml)]
    except nvml.NVMLError:
        return None
    shown = variables.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return uuids
    found = []
    for entry in filter(None, (part.strip() for part in shown.split(","))):
        if entry == "-1":  # CUDA ignores all entries after an invalid one
            break
        found.append(_named(entry, uuids))
    return found


def _named(entry: str, uuids: list[str]) -> str | None:
    if entry.isdigit():
        return uuids[int(entry)] if int(entry) < len(uuids) else None
    matches = [uuid for uuid in uuids if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
