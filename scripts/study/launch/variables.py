"""The environment of a run's ranks; variables that steer training come from the run and the machine's file only."""

import os
from collections.abc import Mapping
from pathlib import Path

from study.core.environment import search_path, without_steering
from study.experiment.definition import RunDefinition
from study.instruments.heartbeats import LIMIT_VARIABLE

TIMELINE = "ranks/timeline.json"  # in the run's directory, as Horovod writes it


def of_ranks(
    run: RunDefinition, folder: Path, stall_limit_s: float, shell: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The ranks' environment.

    shell: the environment of this process; its variables that steer Horovod, TensorFlow, OpenMP or NCCL are removed. A
    traced run disables Horovod's response cache: with the cache, only the first negotiation of a tensor shows when each
    rank was ready.
    """
    variables = {
        **without_steering(shell),
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "OMP_NUM_THREADS": str(run.machine["cores_per_rank"]),
        **run.machine["environment"],
        "PATH": search_path(),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so that a rank's GPU is identified by its UUID
        LIMIT_VARIABLE: str(stall_limit_s),
    }
    if run["trace"]:
        variables |= {"HOROVOD_TIMELINE": str((folder / TIMELINE).resolve()), "HOROVOD_CACHE_CAPACITY": "0"}
    return variables
