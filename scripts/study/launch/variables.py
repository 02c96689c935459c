"""The environment of a run's ranks; variables that steer training come from the run and the machine's file only."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from study.core import cores
from study.core.environment import NOT_CLEARED, SET, STEERING, build_measuring_environment, build_search_path
from study.experiment.definition import RunDefinition
from study.experiment.parameters import PARAMETERS
from study.instruments import background
from study.instruments.heartbeats import LIMIT_VARIABLE
from study.instruments.power import sampling
from study.machines import remote
from study.machines.launchers import remove_other_jobs, remove_slurm_defaults

TIMELINE = "ranks/timeline.json"  # in the run's directory, as Horovod writes it


# Grid keys that are variables: {key: {variable: from the key's value to its own}}.
SWITCHES: dict[str, dict[str, Callable[[Any], str]]] = {
    "fusion_threshold_mb": {"HOROVOD_FUSION_THRESHOLD": lambda mb: str(mb << 20)},
    "cycle_time_ms": {"HOROVOD_CYCLE_TIME": lambda ms: f"{ms:g}"},
    "cache_capacity": {"HOROVOD_CACHE_CAPACITY": str},
    "xla": {"TF_XLA_FLAGS": lambda _: "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"},
    "torch_compile": {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": lambda value: str(int(value))},
    "kmp_blocktime_ms": {"KMP_BLOCKTIME": str},
}


def make_rank_environment(
    run: RunDefinition,
    folder: Path,
    stall_limit_s: float,
    shell: Mapping[str, str] = os.environ,
    in_job: bool = False,
) -> dict[str, str]:
    """The environment of the ranks: the shell's without what steers training, and the run's own variables.

    shell: the environment of this process; its variables that steer are removed (`study.core.environment`).
    in_job: whether this process is in a batch job of the machine (`study.machines.queues.read_job`). Of its
        variables, those that are defaults for commands in it are removed; outside of a job all are, which are those of
        one that is over.
    """
    run_variables = define_run_variables(run, folder, stall_limit_s)
    remote_settings = {
        "names": sorted({*run_variables, *NOT_CLEARED} & {*run_variables, *shell}),
        "without": STEERING,
        "silence_s": remote.compute_silence_s(stall_limit_s),
    }
    shell = remove_slurm_defaults(shell) if in_job else remove_other_jobs(shell, {})
    return {
        **build_measuring_environment(shell),
        "PATH": build_search_path(),
        **run_variables,
        remote.SENT: json.dumps(remote_settings),
    }


def define_run_variables(run: RunDefinition, folder: Path, stall_limit_s: float) -> dict[str, str]:
    """The variables that the run and the machine's file define; ranks on other hosts get no others from here.

    A traced run disables Horovod's response cache: with the cache, only the first negotiation of a tensor shows when
    each rank was ready.
    """
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "OMP_NUM_THREADS": str(run.machine["cores_per_rank"]),
        **run.machine["environment"],
        **_define_key_variables(run, folder),
        "PYTHONUNBUFFERED": "1",
        **SET,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so that a rank's GPU is identified by its UUID
        LIMIT_VARIABLE: str(stall_limit_s),
        sampling.VARIABLE: json.dumps(sampling.select_settings(run.machine)),
        background.VARIABLE: str(folder.resolve()),
    }
    if limit := run.parameters.get("core_limit", 0):  # a definition made before the key existed lacks it
        variables[cores.VARIABLE] = str(limit)
    if run["trace"]:
        variables |= {"HOROVOD_TIMELINE": str((folder / TIMELINE).resolve()), "HOROVOD_CACHE_CAPACITY": "0"}
    return variables


def _define_key_variables(run: RunDefinition, folder: Path) -> dict[str, str]:
    """The variables that grid keys set; a key at its default sets none, so that the machine's or library's holds."""
    variables = {
        variable: as_text(run.parameters[key])
        for key, named in SWITCHES.items()
        if run.parameters.get(key, PARAMETERS[key].default) != PARAMETERS[key].default
        for variable, as_text in named.items()
    }
    if run.parameters.get("intra_op_threads"):
        variables["OMP_NUM_THREADS"] = str(run["intra_op_threads"])
    return variables
