"""The environment in which jobs and ranks are started."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from study.core import cores
from study.core.paths import SCRIPTS

RANKS_GO_ON = "STUDY_RANKS_GO_ON"  # scripts/horovodrun.py then ends no rank because another one has failed
# Variables that steer Horovod, TensorFlow and its kernels, OpenMP, NCCL or our own launcher; runs take them from their
# definition or the machine's file.
STEERING = ("HOROVOD_", "TF_", "XLA_", "ONEDNN_", "DNNL_", "MKL_", "OPENBLAS_", "CUDNN_", "NVIDIA_TF32_OVERRIDE",
            "OMP_", "GOMP_", "KMP_", "NCCL_", RANKS_GO_ON, cores.VARIABLE)  # fmt: skip
SESSION = "STUDY_SESSION"  # variable that identifies the Snakemake that started a job


def search_path() -> str:
    """PATH with this Python's own folder first, so that its ``python`` and ``horovodrun`` are found first."""
    own = str(Path(sys.executable).parent)
    others = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder and folder != own]
    return os.pathsep.join([own, *others])


def without_steering(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those that steer training, even if the shell exported them."""
    return {name: value for name, value in variables.items() if not name.startswith(STEERING)}


def steering(variables: Mapping[str, str]) -> dict[str, str]:
    """Of ``variables``, those that steer training, sorted by name: for the record."""
    return {name: value for name, value in sorted(variables.items()) if name.startswith(STEERING)}


def prepare_for_jobs(account: str | None, is_main_process: bool) -> None:
    """Make ``python $SCRIPTS/NAME.py`` in jobs use this Python, unless a conda environment precedes it in PATH.

    account: the account of batch jobs, if the configuration names one. is_main_process: whether this is the Snakemake
    that the user started; it opens a session, which its jobs inherit.
    """
    os.environ["PATH"] = search_path()
    os.environ["SCRIPTS"] = str(SCRIPTS)
    if is_main_process or SESSION not in os.environ:
        os.environ[SESSION] = f"{time.time_ns()}.{os.getpid()}"
    if account:
        os.environ["STUDY_ACCOUNT"] = account
