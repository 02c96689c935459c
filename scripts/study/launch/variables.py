"""The environment of a run's ranks; variables that steer training come from the run and the machine's file only."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from study.core.environment import STEERING, search_path, without_steering
from study.experiment.definition import RunDefinition
from study.instruments.heartbeats import LIMIT_VARIABLE
from study.machines import remote

TIMELINE = "ranks/timeline.json"  # in the run's directory, as Horovod writes it


def of_ranks(
    run: RunDefinition, folder: Path, stall_limit_s: float, shell: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The ranks' environment.

    shell: the environment of this process; its variables that steer Horovod, TensorFlow, OpenMP or NCCL are removed.
    """
    own = of_run(run, folder, stall_limit_s)
    sent = {"names": sorted(own), "without": STEERING}
    return {**without_steering(shell), **own, "PATH": search_path(), remote.SENT: json.dumps(sent)}


def of_run(run: RunDefinition, folder: Path, stall_limit_s: float) -> dict[str, str]:
    """The variables that the run and the machine's file define; ranks on other hosts get no others from here.

    A traced run disables Horovod's response cache: with the cache, only the first negotiation of a tensor shows when
    each rank was ready.
    """
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "OMP_NUM_THREADS": str(run.machine["cores_per_rank"]),
        **run.machine["environment"],
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so that a rank's GPU is identified by its UUID
        LIMIT_VARIABLE: str(stall_limit_s),
    }
    if run["trace"]:
        variables |= {"HOROVOD_TIMELINE": str((folder / TIMELINE).resolve()), "HOROVOD_CACHE_CAPACITY": "0"}
    return variables
