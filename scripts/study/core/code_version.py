"""Which code made a file: a digest of scripts and of every module of the study that they import."""

import ast
import functools
import hashlib

from study.core.paths import SCRIPTS


def training_code(benchmark):
    """The digest of all that decides what a training run of ``benchmark`` does and measures."""
    return digest("launch_training.py", "train.py", "horovodrun.py", f"study.models.{benchmark}")


def loading_code():
    """The digest of all that decides what a loading measurement does."""
    return digest("measure_loading.py", "load_file.py", "store_matrix.py")


@functools.cache
def digest(*entries):
    """12 hex digits over the ``entries`` and what they import from ``study``.

    An entry is a script's file name or a module. Imports are read from the source, also those inside
    functions; a module that is imported by a computed name must be given as an entry.
    """
    found = {}
    for entry in entries:
        if entry.endswith(".py"):
            _collect(SCRIPTS / entry, found)
        else:
            _collect_module(entry, found)
    total = hashlib.sha256()
    for name in sorted(found):
        total.update(f"{name}\0".encode())
        total.update(hashlib.sha256(found[name]).digest())
    return total.hexdigest()[:12]


def _collect(path, found):
    name = path.relative_to(SCRIPTS).as_posix()
    if name in found:
        return
    found[name], modules = _source(path)
    for module in modules:
        _collect_module(module, found)


def _collect_module(module, found):
    base = SCRIPTS.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            _collect(path, found)


@functools.cache
def _source(path):
    """A file's bytes, and which modules of the study it imports; most files are asked for by many entries."""
    content = path.read_bytes()
    return content, tuple(_imports(ast.parse(content)))


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "study")
