"""Which physical GPU a rank uses: NVML's UUID of what CUDA shows the rank."""

import os

from study.instruments.power.nvml import uuid_of


def visible(variables=os.environ, nvml=None):
    """The UUIDs of the GPUs that CUDA shows this process, in CUDA's order, None for one that cannot be told.

    variables: the environment, whose ``CUDA_VISIBLE_DEVICES`` holds numbers or (shortened) UUIDs. CUDA counts as NVML
    does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, which the launch sets. None where NVML is not there.
    """
    if nvml is None:
        import pynvml as nvml
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [uuid_of(nvml, handle) for handle in handles]
    except nvml.NVMLError:
        return None
    shown = variables.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return uuids
    found = []
    for entry in filter(None, (part.strip() for part in shown.split(","))):
        if entry == "-1":  # CUDA shows nothing after an entry that is no GPU
            break
        found.append(_named(entry, uuids))
    return found


def _named(entry, uuids):
    if entry.isdigit():
        return uuids[int(entry)] if int(entry) < len(uuids) else None
    matches = [uuid for uuid in uuids if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
