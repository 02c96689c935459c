"""The files of a program that are its code, and checks of the symbolic links among them.

A link to a file counts with the file's content, wherever that is. Links to folders are not followed: one within the
code counts with its text, as git stores it, and what it leads to counts once. One that leads out of the code is
refused, as a change there would go unnoticed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core.errors import StudyError

HIDDEN = ".study"  # folder in the program's, with what `study.launch.program_files` keeps
NOT_CODE = ("__pycache__", ".git", HIDDEN)
REMEDY = "name the program's files and folders under code, and with them what their links lead to"

PIPEFAIL = "pipefail"
# What hides in a shell's line how a program ended: a pipe into a filter, and a command that runs in case of an error.
STARTS = r"\b(?:python[0-9.]*|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun|fabric)\b.*(?<!\|)"
PIPE = re.compile(rf"\|&?\s*tee\b|{STARTS}\|&?\s*(?:ts|cat|grep|sed|awk|tail|head)\b")
INSTEAD = re.compile(rf"{STARTS}\|\|\s*(?:true\b|:|echo\b)")
NO_COMMAND = re.compile(r"\\\n|(?:^|\s)#.*|\$\([^()]*\)")  # continued lines, comments, and texts of other commands


def read_contents(spec: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of each file of ``code``, and of each link to a folder. spec: the benchmark's YAML.

    The bytes of such a link are its target's path. They come in the order of their names. Pipes, sockets and devices
    are left out, as git does.

    Raises:
        StudyError: a file cannot be read.
    """
    try:
        for name, path in _list_files(spec):
            if path.is_dir():
                yield f"{name}\0link", os.fsencode(path.readlink())
            elif path.is_file() or not path.exists():
                yield name, path.read_bytes()
    except OSError as error:
        raise StudyError(f"{error.filename}: is code of the benchmark and cannot be read: {error.strerror}") from None


def list_paths(spec: Mapping[str, Any]) -> list[Path]:
    """The files and links that `read_contents` reads; none if they cannot be listed. spec: the benchmark's YAML."""
    try:
        return [path for _, path in _list_files(spec)]
    except OSError:
        return []


def find_link_fault(spec: Mapping[str, Any]) -> str | None:
    """The reason to refuse a symbolic link in ``code``, with its name; None if all may be there."""
    folder = Path(os.path.realpath(spec["folder"]))
    roots = [Path(os.path.realpath(folder / name)) for name in spec["code"]]
    visible_folders = [folder, *roots] if spec["environment"].get("image") else None
    try:
        links = [each for each in _list_files(spec) if each[1].is_symlink()]
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    faults = ((name, _explain_fault(path, roots, visible_folders)) for name, path in links)
    return next((f"{name} is a symbolic link that {why}" for name, why in faults if why), None)


def _explain_fault(path: Path, roots: list[Path], visible_folders: list[Path] | None) -> str | None:
    """Why a link is refused; None if it may be there. visible_folders: of the container; None without one."""
    try:
        target = Path(os.path.realpath(path, strict=True))
    except OSError as error:
        return f"leads nowhere ({error.strerror}); remove it, or correct it"
    if target.is_dir() and not any(_is_code(each, target) for each in roots):
        return f"leads out of the code, to the folder {target}, where a change would go unnoticed; {REMEDY}"
    if visible_folders is not None and not any(map(target.is_relative_to, visible_folders)):
        return f"leads to {target}, which the container does not see; {REMEDY}"
    return None


def _is_code(root: Path, target: Path) -> bool:
    """Whether ``target`` is code below the folder ``root``."""
    return target.is_relative_to(root) and not _is_left_out(target.relative_to(root))


def _list_files(spec: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the files and links of ``code``; a link that it names itself is followed."""
    folder = Path(spec["folder"])
    for name in sorted(spec["code"]):
        part = folder / name
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            if _is_left_out(path.relative_to(part)) or (path.is_dir() and not path.is_symlink()):
                continue
            yield str(path.relative_to(folder) if path.is_relative_to(folder) else path), path


def _is_left_out(path: Path) -> bool:
    """Whether a path is in one of the folders `NOT_CODE`."""
    return not set(path.parts).isdisjoint(NOT_CODE)


def find_hidden_exit_code(spec: Mapping[str, Any]) -> str:
    """The line of a command's shell, or of its script, whose exit code is not that of the program; "" without one."""
    scripts = [
        path for word in spec["command"] if word.endswith(".sh") and (path := Path(spec["folder"], word)).is_file()
    ]
    for text in [*spec["command"], *(path.read_text(errors="replace") for path in scripts)]:
        for line in NO_COMMAND.sub(" ", text).splitlines():
            if INSTEAD.search(line) or (PIPE.search(line) and PIPEFAIL not in text):
                return line.strip()
    return ""


def matches_any(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern names a file, or a folder in which it is."""
    return any(fnmatch.fnmatch(path, each) or fnmatch.fnmatch(path, f"{each.rstrip('/')}/*") for each in patterns)
