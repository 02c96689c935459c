"""A program's code and environment: the digest of its code, its container, variables and packages."""

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


def compute_code_digest(spec: Mapping[str, Any]) -> str:
    """Digest of the names and bytes of the files of ``code`` in 12 hex digits, see `code_files.read_contents`.

    Raises:
        StudyError: a file cannot be read.
    """
    total = hashlib.sha256()
    for name, content in code_files.read_contents(spec):
        total.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digests.shorten_digest(total.hexdigest())


def build_command_line(spec: Mapping[str, Any], words: list[str], bound: list[str], gpus: int = 0) -> list[str]:
    """The command line to execute: ``words``, in the benchmark's container if it has one.

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
    gpu_options = [] if not gpus else ["--rocm"] if AMD.exists() and not NVIDIA.exists() else ["--nv"]
    return ["apptainer", "exec", *gpu_options, *binds, "--pwd", spec["folder"], str(folder / image), *words]


def build_variables(spec: Mapping[str, Any], shell: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of the program's ``python``, which goes first in PATH; {} without one."""
    python = spec["environment"].get("python")
    if not python:
        return {}
    prefix = os.path.normpath(Path(spec["folder"]) / python)
    return {"PATH": os.pathsep.join([f"{prefix}/bin", shell.get("PATH", os.defpath)]), "VIRTUAL_ENV": prefix}


def read_package_versions(spec: Mapping[str, Any]) -> dict[str, str]:
    """Versions of those `PACKAGES` that the program's Python finds, and ``environment``: a digest of all packages.

    Raises:
        StudyError: the environment's Python does not answer. An image without Python has a digest of itself only.
    """
    environment = spec["environment"]
    if "image" in environment:
        return _read_image_versions(spec)
    if not environment:
        import platform

        packages = [_read_name_and_version(each) for each in importlib.metadata.distributions()]
        version = platform.python_version()
    else:
        version, packages = _query_json([f"{Path(spec['folder'], environment['python'])}/bin/python", "-c", TELL])
    return select_versions(version, packages)


def _read_name_and_version(package: importlib.metadata.Distribution) -> list[str]:
    """[name, version] of a package, each "" if its metadata lack it.

    ``package.metadata`` would parse all fields as those of a mail, which takes half of the time of all packages.
    """
    text = next(filter(None, map(package.read_text, ("METADATA", "PKG-INFO", ""))), "")  # the last: one file, no folder
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon and not line.startswith((" ", "\t")):
            break  # the blank line after the fields
        fields.setdefault(key.lower(), value.strip())
    return [fields.get("name", ""), fields.get("version", "")]


def _read_image_versions(spec: Mapping[str, Any]) -> dict[str, str]:
    """As `read_package_versions`, of an image's Python, with ``image``: a digest of the image's size and beginning."""
    path = Path(spec["folder"]) / spec["environment"]["image"]
    try:
        with open(path, "rb") as handle:
            image_digest = hashlib.sha256(f"{path.stat().st_size} ".encode() + handle.read(HEAD_BYTES)).hexdigest()[:12]
    except IsADirectoryError:
        image_digest = ""
    except OSError as error:
        raise StudyError(f"environment: image: {path} cannot be read: {error.strerror}") from None
    digest = {"image": image_digest} if image_digest else {}
    has_python = _query_json(build_command_line(spec, ["sh", "-c", HAS_PYTHON], []))
    return {
        **(select_versions(*_query_json(build_command_line(spec, ["python3", "-c", TELL], []))) if has_python else {}),
        **digest,
    }


def select_versions(version: str, packages: list[list[str]]) -> dict[str, str]:
    """Select the versions to record. packages: [name, version] of all, in the order in which Python finds them.

    Of a package that is there twice, such as one of a loaded module and one of the environment, the first is imported.
    """
    chosen = {re.sub("[-_.]+", "-", name.lower()): version_of_name for name, version_of_name in reversed(packages)}
    recorded = {
        name: version_of_name for name, version_of_name in chosen.items() if name in PACKAGES or name.startswith(NCCL)
    }
    lock = digests.shorten_digest(hashlib.sha256(json.dumps(sorted(packages)).encode()).hexdigest())
    return {"python": version, **dict(sorted(recorded.items())), "environment": lock}


def _query_json(words: list[str]) -> Any:
    """Run a command, and parse its output as JSON; raises `StudyError` if it fails."""
    try:
        result = commands.run_program(words, ANSWER_S)
        if result.returncode:
            last_line = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
            raise StudyError(f"environment: {words[0]} does not tell its packages: {last_line[0][:300]}")
        return json.loads(result.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StudyError(f"environment: {words[0]} does not tell its packages: {error}") from None
