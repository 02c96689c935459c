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
from study.core.boot import read_boot_id
from study.core.files import AnyPath
from study.core.paths import ROOT

GIT_S = 60  # for an answer of git
WITHOUT_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
FRAMEWORK_PACKAGES = {"tensorflow": ("tensorflow", "tf-keras", "horovod"), "pytorch": ("torch",)}
COMMON_PACKAGES = ("numpy", "pandas", "snakemake")
PACKAGES = (*itertools.chain(*FRAMEWORK_PACKAGES.values()), *COMMON_PACKAGES)
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


def read_package_versions(framework: str = "tensorflow") -> dict[str, str | None]:
    """Versions of the packages that a run with a framework uses; None if not installed."""
    return {name: _read_version(name) for name in (*FRAMEWORK_PACKAGES[framework], *COMMON_PACKAGES)}


def collect_provenance(variables: Mapping[str, str] = os.environ, framework: str = "tensorflow") -> dict[str, Any]:
    """Versions of code and software, the host and some environment ``variables``, as a dict for JSON."""
    return {
        "git": read_git_state(),
        "python": platform.python_version(),
        "packages": read_package_versions(framework),
        "table_parser": find_table_parser(),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "cpu": _read_cpu_model(),
            "boot_id": read_boot_id(),
            **cores.describe_host(),
            "load_average_before": os.getloadavg()[0],
        },
        "gpus": find_gpus(),
        "environment": {name: value for name, value in sorted(variables.items()) if name.startswith(ENVIRONMENT)},
    }


def find_table_parser() -> str:
    """The parser of text tables in use: ``compiled``, or the slower ``fallback``."""
    return "fallback" if importlib.util.find_spec("study.data._numbers") is None else "compiled"


def read_git_state(root: AnyPath = ROOT) -> dict[str, Any]:
    """The git commit and whether tracked files differ from it; None with the reason where unknown.

    git runs programs that a repository's configuration names, and everybody can put a repository into a folder above
    this one that others can write to. So git compares files only in a repository of this user or of root. In another
    user's, which nothing above ``root`` can be, it reads the commit alone.
    """
    folder = Path(root).resolve()
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)
    commit, dirty, reason = None, None, None if top else "no git repository"
    try:
        if top:
            others = _find_path_of_others([top, top / ".git"])
            if top == folder or not others:
                *parts, commit = run_git(top, "rev-parse", "--git-dir", "--git-common-dir", "HEAD").splitlines()
                files = [top / part / name for part in parts for name in ("", "config", "config.worktree")]
                others = others or _find_path_of_others(files) or _find_path_of_others(_list_configuration_files(top))
            if others:
                reason = f"{others} belongs to another user, or all users may write to it"
            else:
                dirty, reason = _find_changes(top)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
    return {"commit": commit, "dirty": dirty, "reason": reason}


def _find_path_of_others(paths: Iterable[Path]) -> Path | None:
    """The first of the existing paths that another user could replace; None if there is none."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if not all(ownership.is_trusted(status) for status in (path.lstat(), path.stat())):
                return path
    return None


def _list_configuration_files(top: Path) -> list[Path]:
    """Files that git reads as the repository's configuration, with the user's and included ones."""
    origins_and_names = run_git(top, "config", "--list", "--name-only", "--show-origin", "-z").split("\0")
    names = (each.removeprefix("file:") for each in dict.fromkeys(origins_and_names[::2]) if each.startswith("file:"))
    return [top / name for name in names]


def _find_changes(top: Path) -> tuple[bool | None, str | None]:
    """(True if tracked files, also of submodules, differ from the commit; None if unknown, the reason).

    git itself would enter a submodule without a look at whose it is.
    """
    is_dirty = bool(run_git(top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"))
    entries = (entry.partition("\t") for entry in run_git(top, "ls-files", "--stage", "-z").split("\0"))
    modules = [top / name for mode, _, name in entries if mode.startswith("160000 ")]
    states = [read_git_state(each) for each in modules if os.path.lexists(each / ".git")]
    if is_dirty or any(each["dirty"] for each in states):
        return True, None
    unknown = next((each for each in states if each["dirty"] is None), None)
    return (None, unknown["reason"]) if unknown else (False, None)


def run_git(top: Path, *arguments: str) -> str:
    """The output of git for the repository whose ``.git`` is in ``top``, whatever the environment names.

    It runs no hook and no file monitor, writes nothing, and asks no server for what a partial clone lacks. Filters do
    run where it compares files.

    Raises:
        subprocess.SubprocessError: git refuses, or does not answer in time.
        OSError: there is no git.
    """
    line = ["git", "-C", str(top), f"--git-dir={top / '.git'}", f"--work-tree={top}", *WITHOUT_PROGRAMS, *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    completed = commands.run_program(
        line, GIT_S, {**variables, "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
    )
    completed.check_returncode()
    return completed.stdout


def _read_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read_cpu_model() -> str | None:
    """The processor's name as the kernel gives it (x86: ``model name``, POWER: ``cpu``), or None."""
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else []:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return platform.processor() or None


def find_gpus() -> dict[str, Any]:
    """Names and UUIDs of this host's NVIDIA GPUs, and why any of them is unknown."""
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception as error:  # an installation without the bindings, or a driver that is not loaded
        return {"found": [], "reason": f"NVML: {error}"}
    gpus, reasons = [], []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            gpus.append({"name": _decode(name), "uuid": _decode(uuid)})
        except pynvml.NVMLError as error:  # one that is lost leaves the others
            reasons.append(f"NVML: GPU {index}: {error}")
    pynvml.nvmlShutdown()
    return {"found": gpus, "reason": "; ".join(reasons) or None}


def _decode(text: str | bytes) -> str:
    """NVML's text, decoded (older bindings give bytes)."""
    return text.decode(errors="replace") if isinstance(text, bytes) else text
