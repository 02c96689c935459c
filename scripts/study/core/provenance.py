"""Where, when and with which software a run was made; collected without importing a framework."""

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core import commands, cores
from study.core.boot import boot_id
from study.core.files import AnyPath
from study.core.paths import ROOT

GIT_S = 60  # for an answer of git
OF_FRAMEWORK = {"tensorflow": ("tensorflow", "tf-keras", "horovod"), "pytorch": ("torch",)}
OF_EVERY_RUN = ("numpy", "pandas", "snakemake")
PACKAGES = (*itertools.chain(*OF_FRAMEWORK.values()), *OF_EVERY_RUN)
ENVIRONMENT = (
    "HOROVOD_",
    "OMP_",
    "TF_CPP_",
    "TF_ENABLE_",
    "TF_XLA_",
    "TORCH_",
    "PYTORCH_",
    "GLOO_",
    "KMP_",
    "CUDA_",
    "NCCL_",
    "OMPI_MCA_",
    "SLURM_JOB",
    "LSB_JOBID",
    "COBALT_JOBID",
)


def packages(framework: str = "tensorflow") -> dict[str, str | None]:
    """The versions of the packages that a run with a framework uses; None for one that is not installed."""
    return {name: _version(name) for name in (*OF_FRAMEWORK[framework], *OF_EVERY_RUN)}


def collect(variables: Mapping[str, str] = os.environ, framework: str = "tensorflow") -> dict[str, Any]:
    """Code, software, host and some ``variables`` (of the environment), as a dict for JSON."""
    return {
        "git": git_state(),
        "python": platform.python_version(),
        "packages": packages(framework),
        "table_parser": table_parser(),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "cpu": _cpu_model(),
            "boot_id": boot_id(),
            **cores.facts(),
            "load_average_before": os.getloadavg()[0],
        },
        "gpus": _gpus(),
        "environment": {name: value for name, value in sorted(variables.items()) if name.startswith(ENVIRONMENT)},
    }


def table_parser() -> str:
    """How loader ``parallel`` and the conversion read numbers: ``compiled``, or the slower ``fallback``."""
    return "fallback" if importlib.util.find_spec("study.data._numbers") is None else "compiled"


def git_state(root: AnyPath = ROOT) -> dict[str, str | bool | None]:
    """The commit, and whether tracked files differ from it; both None outside a git checkout."""
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        dirty = bool(_git(root, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}


def _git(root: AnyPath, *arguments: str) -> str:
    """What git says; also of another user's clone, which git refuses by itself: its code runs here anyway."""
    done = commands.run(["git", "-C", str(root), "-c", "safe.directory=*", *arguments], GIT_S)
    done.check_returncode()
    return done.stdout


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    """The processor's name as the kernel gives it (x86: ``model name``, POWER: ``cpu``), or None."""
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else []:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return platform.processor() or None


def _gpus() -> dict[str, Any]:
    """Names and UUIDs of this host's NVIDIA GPUs, and the reason why one, or all of them, cannot be told."""
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception as error:  # an installation without the bindings, or a driver that is not loaded
        return {"found": [], "reason": f"NVML: {error}"}
    found, reasons = [], []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            found.append({"name": _text(name), "uuid": _text(uuid)})
        except pynvml.NVMLError as error:  # one that is lost leaves the others
            reasons.append(f"NVML: GPU {index}: {error}")
    pynvml.nvmlShutdown()
    return {"found": found, "reason": "; ".join(reasons) or None}


def _text(told: str | bytes) -> str:
    """What NVML tells; older bindings give bytes."""
    return told.decode(errors="replace") if isinstance(told, bytes) else told
