"""What a program is made of: the content of its code, the state of its git folder, and the packages it finds."""

import hashlib
import importlib.metadata
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core import commands
from study.core.errors import StudyError

ANSWER_S = 60  # for the environment's Python
PACKAGES = ("torch", "jax", "jaxlib", "lightning", "pytorch-lightning", "transformers", "accelerate", "deepspeed",
            "tensorflow", "keras", "horovod", "mpi4py", "numpy")  # fmt: skip
NCCL = "nvidia-nccl"  # begin of the names of NCCL's packages
NOT_CODE = ("__pycache__", ".git")
TELL = ("import importlib.metadata as m, json, platform; print(json.dumps([platform.python_version(), "
        "sorted([d.metadata['Name'] or '', d.version or ''] for d in m.distributions())]))")  # fmt: skip


def code_digest(spec: Mapping[str, Any]) -> str:
    """12 hex digits over the names and bytes of the files of ``code``.

    Raises:
        StudyError: a file cannot be read.
    """
    total, folder = hashlib.sha256(), Path(spec["folder"])
    for path in _files(folder, spec["code"]):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StudyError(f"{path}: is code of the benchmark and cannot be read: {error.strerror}") from None
        total.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:12]


def _files(folder: Path, code: list[str]) -> Iterator[Path]:
    for name in sorted(code):
        found = folder / name
        files = sorted(found.rglob("*")) if found.is_dir() else [found]
        yield from (path for path in files if not path.is_dir() and not set(path.parts) & set(NOT_CODE))


def line(spec: Mapping[str, Any], words: list[str], bound: list[str]) -> list[str]:
    """The words to execute: in the benchmark's container, if it has one. bound: folders that the program writes to."""
    image = spec["environment"].get("image")
    if not image:
        return words
    folders = [part for each in (spec["folder"], *bound) for part in ("--bind", each)]
    return ["apptainer", "exec", *folders, "--pwd", spec["folder"], str(Path(spec["folder"]) / image), *words]


def variables(spec: Mapping[str, Any], shell: Mapping[str, str]) -> dict[str, str]:
    """The variables of the program's environment: its ``python`` goes first in PATH."""
    python = spec["environment"].get("python")
    if not python:
        return {}
    prefix = os.path.normpath(Path(spec["folder"]) / python)
    return {"PATH": os.pathsep.join([f"{prefix}/bin", shell.get("PATH", os.defpath)]), "VIRTUAL_ENV": prefix}


def packages(spec: Mapping[str, Any]) -> dict[str, str]:
    """Versions of the packages that the program finds, of those in `PACKAGES`, and ``environment``: a digest of all.

    Raises:
        StudyError: the environment's Python does not answer.
    """
    environment = spec["environment"]
    if not environment:
        import platform

        every = [[each.metadata["Name"] or "", each.version or ""] for each in importlib.metadata.distributions()]
        version = platform.python_version()
    else:
        prefix = f"{Path(spec['folder']) / environment['python'] / 'bin'}/" if "python" in environment else ""
        program = f"{prefix}python"
        version, every = _asked(line(spec, [program, "-c", TELL], []))
    chosen = {name.lower().replace("_", "-"): told for name, told in every}
    known = {name: told for name, told in chosen.items() if name in PACKAGES or name.startswith(NCCL)}
    lock = hashlib.sha256(json.dumps(sorted(every)).encode()).hexdigest()[:12]
    return {"python": version, **dict(sorted(known.items())), "environment": lock}


def _asked(words: list[str]) -> Any:
    try:
        done = commands.run(words, ANSWER_S)
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StudyError(f"environment: {words[0]} does not tell its packages: {error}") from None
