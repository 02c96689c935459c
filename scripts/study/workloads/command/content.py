"""What a program is made of: the content of its code, the state of its git folder, and the packages it finds."""

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core import commands, digests
from study.core.errors import StudyError
from study.workloads.command import code_files

ANSWER_S = 60  # for the environment's Python
PACKAGES = ("torch", "jax", "jaxlib", "lightning", "pytorch-lightning", "transformers", "accelerate", "deepspeed",
            "tensorflow", "keras", "horovod", "mpi4py", "numpy")  # fmt: skip
NCCL = "nvidia-nccl"  # begin of the names of NCCL's packages
TELL = ("import importlib.metadata as m, json, platform; e = (d.metadata for d in m.distributions()); print(json.dumps("
        "[platform.python_version(), [[d['Name'] or '', d['Version'] or ''] for d in e]]))")  # fmt: skip
HAS_PYTHON = "if command -v python3 >/dev/null; then echo true; else echo false; fi"
HEAD_BYTES = 64 << 10  # of an image that tell it from others: SIF's header has the identity of its build
AMD, NVIDIA = Path("/dev/kfd"), Path("/dev/nvidiactl")  # on a node with such GPUs


def code_digest(spec: Mapping[str, Any]) -> str:
    """12 hex digits over the names and bytes of the files of ``code``, see `study.workloads.command.code_files`.

    Raises:
        StudyError: a file cannot be read.
    """
    total = hashlib.sha256()
    for name, content in code_files.contents(spec):
        total.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digests.short(total.hexdigest())


def line(spec: Mapping[str, Any], words: list[str], bound: list[str], gpus: int = 0) -> list[str]:
    """The words to execute: in the benchmark's container, if it has one.

    Args:
        spec: the benchmark's YAML.
        words: of its command.
        bound: folders that the program reads or writes besides its own one and its code.
        gpus: of a rank; with some, the container gets the node's GPUs.
    """
    image = spec["environment"].get("image")
    if not image:
        return words
    folder = Path(spec["folder"])
    code = [path for name in spec["code"] if not (path := (folder / name).resolve()).is_relative_to(folder)]
    binds = [part for each in (folder, *code, *bound) for part in ("--bind", str(each))]
    of_gpus = [] if not gpus else ["--rocm"] if AMD.exists() and not NVIDIA.exists() else ["--nv"]
    return ["apptainer", "exec", *of_gpus, *binds, "--pwd", spec["folder"], str(folder / image), *words]


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
        StudyError: the environment's Python does not answer. An image without Python has a digest of itself only.
    """
    environment = spec["environment"]
    if "image" in environment:
        return _packages_of_image(spec)
    if not environment:
        import platform

        every = [_named(each) for each in importlib.metadata.distributions()]
        version = platform.python_version()
    else:
        version, every = told_by(Path(spec["folder"]) / environment["python"] / "bin" / "python")
    return versions(version, every)


def _named(package: importlib.metadata.Distribution) -> list[str]:
    """[name, version], each "" if it is not told.

    As of ``package.metadata``, which parses all fields as those of a mail: half of the time that all packages take.
    """
    text = next(filter(None, map(package.read_text, ("METADATA", "PKG-INFO", ""))), "")  # the last: one file, no folder
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon and not line.startswith((" ", "\t")):
            break  # the blank line after the fields
        found.setdefault(key.lower(), value.strip())
    return [found.get("name", ""), found.get("version", "")]


def _packages_of_image(spec: Mapping[str, Any]) -> dict[str, str]:
    """As `packages`, with ``image``: a digest of the image's size and begin."""
    path = Path(spec["folder"]) / spec["environment"]["image"]
    try:
        with open(path, "rb") as handle:
            told = hashlib.sha256(f"{path.stat().st_size} ".encode() + handle.read(HEAD_BYTES)).hexdigest()[:12]
    except IsADirectoryError:
        told = ""
    except OSError as error:
        raise StudyError(f"environment: image: {path} cannot be read: {error.strerror}") from None
    digest = {"image": told} if told else {}
    has_python = _asked(line(spec, ["sh", "-c", HAS_PYTHON], []))
    return {**(versions(*_asked(line(spec, ["python3", "-c", TELL], []))) if has_python else {}), **digest}


def told_by(python: Path) -> tuple[str, list[list[str]]]:
    """(version, [name, version] of all packages) of an environment, by its Python.

    Raises:
        StudyError: it does not answer.
    """
    version, every = _asked([str(python), "-c", TELL])
    return version, every


def versions(version: str, every: list[list[str]]) -> dict[str, str]:
    """The versions that are recorded. every: [name, version] of all packages, in the order in which Python finds them.

    Of a package that is there twice, such as one of a loaded module and one of the environment, the first is imported.
    """
    chosen = {re.sub("[-_.]+", "-", name.lower()): told for name, told in reversed(every)}
    known = {name: told for name, told in chosen.items() if name in PACKAGES or name.startswith(NCCL)}
    lock = digests.short(hashlib.sha256(json.dumps(sorted(every)).encode()).hexdigest())
    return {"python": version, **dict(sorted(known.items())), "environment": lock}


def _asked(words: list[str]) -> Any:
    try:
        done = commands.run(words, ANSWER_S)
        if done.returncode:
            told = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise StudyError(f"environment: {words[0]} does not tell its packages: {told[0][:300]}")
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StudyError(f"environment: {words[0]} does not tell its packages: {error}") from None
