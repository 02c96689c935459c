"""The files of a program that are its code, and where the symbolic links among them lead.

A link to a file counts with the file's content, wherever that is. Links to folders are not followed: one within the
code counts with its text, as git stores it, and what it leads to counts once. One that leads out of the code is
refused, as a change there would go unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core.errors import StudyError

NOT_CODE = ("__pycache__", ".git")
REMEDY = "name the program's files and folders under code, and with them what their links lead to"


def contents(spec: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each file of ``code``, and of each link to a folder, in their order. spec: the benchmark's YAML.

    Pipes, sockets and devices are left out, as git does.

    Raises:
        StudyError: a file cannot be read.
    """
    try:
        for name, path in _found(spec):
            if path.is_dir():
                yield f"{name}\0link", os.fsencode(path.readlink())
            elif path.is_file() or not path.exists():
                yield name, path.read_bytes()
    except OSError as error:
        raise StudyError(f"{error.filename}: is code of the benchmark and cannot be read: {error.strerror}") from None


def link_fault(spec: Mapping[str, Any]) -> str | None:
    """Why a link among the files of ``code`` is refused; None if none is. spec: as for `contents`."""
    folder = Path(os.path.realpath(spec["folder"]))
    roots = [Path(os.path.realpath(folder / name)) for name in spec["code"]]
    seen = [folder, *roots] if spec["environment"].get("image") else None
    try:
        links = [each for each in _found(spec) if each[1].is_symlink()]
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    whys = ((name, _fault(path, roots, seen)) for name, path in links)
    return next((f"{name} is a symbolic link that {why}" for name, why in whys if why), None)


def _fault(path: Path, roots: list[Path], seen: list[Path] | None) -> str | None:
    """seen: the folders that the program's container has; None without one."""
    try:
        target = Path(os.path.realpath(path, strict=True))
    except OSError as error:
        return f"leads nowhere ({error.strerror}); remove it, or correct it"
    if target.is_dir() and not any(_has(each, target) for each in roots):
        return f"leads out of the code, to the folder {target}, where a change would go unnoticed; {REMEDY}"
    if seen is not None and not any(map(target.is_relative_to, seen)):
        return f"leads to {target}, which the container does not see; {REMEDY}"
    return None


def _has(root: Path, target: Path) -> bool:
    """Whether a target is among the code of one of its folders."""
    return target.is_relative_to(root) and not _is_left_out(target.relative_to(root))


def _found(spec: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """(name, path) of the files and links of ``code``; a link that it names itself is followed."""
    folder = Path(spec["folder"])
    for name in sorted(spec["code"]):
        own = folder / name
        for path in sorted(own.rglob("*")) if own.is_dir() else [own]:
            if _is_left_out(path.relative_to(own)) or (path.is_dir() and not path.is_symlink()):
                continue
            yield str(path.relative_to(folder) if path.is_relative_to(folder) else path), path


def _is_left_out(path: Path) -> bool:
    return not set(path.parts).isdisjoint(NOT_CODE)
