"""Where, when and with which software a run was made; collected without importing a framework."""

import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import commands, cores, ownership
from study.core.boot import boot_id
from study.core.files import AnyPath
from study.core.paths import ROOT

GIT_S = 60  # for an answer of git
WITHOUT_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
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


def git_state(root: AnyPath = ROOT) -> dict[str, Any]:
    """The commit, and whether tracked files differ from it; what is not known is None, with the reason.

    git runs programs that a repository's configuration names, and everybody can put a repository into a folder above
    this one that others can write to. So git compares files only in a repository of this user or of root. In another
    user's, which nothing above ``root`` can be, it reads the commit alone.
    """
    folder = Path(root).resolve()
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)
    commit, dirty, reason = None, None, None if top else "no git repository"
    try:
        if top:
            others = _path_of_others([top, top / ".git"])
            if top == folder or not others:
                *parts, commit = run_git(top, "rev-parse", "--git-dir", "--git-common-dir", "HEAD").splitlines()
                files = [top / part / name for part in parts for name in ("", "config", "config.worktree")]
                others = others or _path_of_others(files) or _path_of_others(_configuration(top))
            if others:
                reason = f"{others} belongs to another user, or all users may write to it"
            else:
                dirty, reason = _find_changes(top)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
    return {"commit": commit, "dirty": dirty, "reason": reason}


def _path_of_others(paths: Iterable[Path]) -> Path | None:
    """The first of the paths at which another user may put something; one that is missing is none."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if not all(ownership.is_trusted(status) for status in (path.lstat(), path.stat())):
                return path
    return None


def _configuration(top: Path) -> list[Path]:
    """The files that git reads as the repository's configuration, with this user's and those that they include."""
    told = run_git(top, "config", "--list", "--name-only", "--show-origin", "-z").split("\0")
    names = (each.removeprefix("file:") for each in dict.fromkeys(told[::2]) if each.startswith("file:"))
    return [top / name for name in names]


def _find_changes(top: Path) -> tuple[bool | None, str | None]:
    """Whether tracked files differ from the commit, also those of submodules; None, and the reason, if that is unknown.

    git itself would enter a submodule without a look at whose it is.
    """
    is_dirty = bool(run_git(top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"))
    entries = (entry.partition("\t") for entry in run_git(top, "ls-files", "--stage", "-z").split("\0"))
    modules = [top / name for mode, _, name in entries if mode.startswith("160000 ")]
    states = [git_state(each) for each in modules if os.path.lexists(each / ".git")]
    if is_dirty or any(each["dirty"] for each in states):
        return True, None
    unknown = next((each for each in states if each["dirty"] is None), None)
    return (None, unknown["reason"]) if unknown else (False, None)


def run_git(top: Path, *arguments: str) -> str:
    """What git says of the repository whose ``.git`` is in ``top``, and of no other, whatever the environment names.

    It runs no hook and no file monitor, writes nothing, and asks no server for what a partial clone lacks. Filters do
    run where it compares files.

    Raises:
        subprocess.SubprocessError: git refuses, or does not answer in time.
        OSError: there is no git.
    """
    line = ["git", "-C", str(top), f"--git-dir={top / '.git'}", f"--work-tree={top}", *WITHOUT_PROGRAMS, *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = commands.run(line, GIT_S, {**variables, "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"})
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
