"""The cores and the GPU that PyTorch uses in a process."""

from __future__ import annotations

import os

import torch

from study.backends.base import choose_gpu_index
from study.experiment.definition import RunDefinition
from study.instruments.gpus import list_visible_gpus


def limit_threads(compute: int, operations: int = 1) -> None:
    """Limit PyTorch's threads: for one operation, and operations at once."""
    os.environ["OMP_NUM_THREADS"] = str(compute)
    torch.set_num_threads(compute)
    torch.set_num_interop_threads(operations)


def choose_device(run: RunDefinition, local_rank: int) -> torch.device:
    """The device of a rank: the CPU, or its GPU, set to make matrix products as exact as TensorFlow's.

    Raises:
        StudyError: the machine's file gives each rank a GPU, and there is none for this one.
    """
    if run.machine["gpus_per_rank"] == 0:
        return torch.device("cpu")
    index = choose_gpu_index("PyTorch", torch.cuda.device_count(), local_rank)
    torch.set_float32_matmul_precision("high")  # TF32 from Ampere on; convolutions have it already
    return torch.device("cuda", index)


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU; on the CPU there is none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def pin_device(run: RunDefinition, local_rank: int) -> str | None:
    """Give the rank its GPU, by its local rank; none if the machine's file has no GPUs.

    Returns the GPU's UUID; None without a GPU, or if the UUID is unknown.
    """
    device = choose_device(run, local_rank)
    if device.type == "cpu":
        return None
    torch.cuda.set_device(device)
    uuids = list_visible_gpus()
    return uuids[device.index] if uuids and len(uuids) == torch.cuda.device_count() else None
