"""Version of the code that made a file: a digest of scripts and of all modules of the study that they import."""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.core.files import write_text
from study.core.paths import SCRIPTS

# Code that can change a run's numbers: the training process, the sampler process, and what starts and times the ranks.
RUN = ("train.py", "sample_power.py", "horovodrun.py", "strategyrun.py", "study.launch.supervision",
       "study.launch.variables", "study.machines.guard", "study.machines.remote")  # fmt: skip
# Declarations: a new grid key with a default does not change earlier results. Declared values that can change the
# output of a step are among the params of its rule.
DECLARATIONS = "study/experiment/parameters/"
MOST_KNOWN = 2000  # sources, after which those of old versions are forgotten


def training_code(*benchmarks: str, framework: str) -> str:
    """The digest of all code that can change the numbers of a training run, and of nothing else.

    Args:
        benchmarks: that it trains; several in an ensemble of different networks.
        framework: that trains them.
    """
    workloads = [f"study.workloads.{name}" for name in benchmarks]
    models = [f"{workload}.{framework}" for workload in workloads]
    backend = (f"study.backends.{framework}", f"study.backends.{framework}.backend")
    return digest(*RUN, *backend, *workloads, *models)


def loading_code() -> str:
    """The digest of all code that affects a loading measurement."""
    return digest("measure_loading.py", "load_file.py", "load_images.py", "store_matrix.py")


@functools.cache
def digest(*entries: str) -> str:
    """12 hex digits over the ``entries`` and everything that they import from ``study``.

    An entry is a script's file name or a module. Imports are read from the source, including imports inside functions.
    A package that calls `study.core.registry.import_submodules` counts as importing all its modules, and a module that
    calls `submodule` there as importing that module of all parts. Any other module imported by a computed name must be
    given as an entry. `DECLARATIONS` are left out.
    """
    found: dict[str, bytes] = {}
    for entry in entries:
        if entry.endswith(".py"):
            _collect(SCRIPTS / entry, found)
        else:
            _collect_module(entry, found)
    total = hashlib.sha256()
    for name in sorted(found):
        total.update(f"{name}\0".encode())
        total.update(found[name])
    _known(SCRIPTS).keep()
    return total.hexdigest()[:12]


def _collect(path: Path, found: dict[str, bytes]) -> None:
    name = path.relative_to(SCRIPTS).as_posix()
    if name in found or name.startswith(DECLARATIONS):
        return
    found[name], modules = _source(path)
    for module in modules:
        _collect_module(module, found)


def _collect_module(module: str, found: dict[str, bytes]) -> None:
    sources, compiled = _files_of(SCRIPTS, module)
    for path in sources:
        _collect(path, found)
    if compiled:
        found[compiled.relative_to(SCRIPTS).as_posix()] = hashlib.sha256(compiled.read_bytes()).digest()


@functools.cache
def _files_of(scripts: Path, module: str) -> tuple[tuple[Path, ...], Path | None]:
    """The Python sources of a module or package, and its C++ source; none for a name inside a module.

    A part of the module's name may be ``*``, for any.
    """
    if "*" in module:
        return tuple(sorted(scripts.glob(f"{module.replace('.', '/')}.py"))), None
    base = scripts.joinpath(*module.split("."))
    sources = (base.with_suffix(".py"), base / "__init__.py")
    compiled = base.with_suffix(".cpp")
    return tuple(path for path in sources if path.exists()), compiled if compiled.exists() else None


@functools.cache
def _source(path: Path) -> tuple[bytes, tuple[str, ...]]:
    """SHA-256 of a file's code, and the modules of the study that it imports; cached, since many entries share files.

    The code is without comments, docstrings and layout: to reword them changes no number.
    """
    source = path.read_bytes()
    known, key = _known(SCRIPTS), hashlib.sha256(source).hexdigest()
    if key not in known.files:
        known.files[key] = _read(source)
        known.is_new = True
    code, imported, imports_submodules = known.files[key]
    submodules = _submodules(path) if imports_submodules and path.name == "__init__.py" else ()
    return bytes.fromhex(code), (*imported, *submodules)


def _read(source: bytes) -> list[Any]:
    """[SHA-256 of the code, the modules that it imports, whether it calls ``import_submodules``] of a file's source."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    imported = [*_imports(nodes), *_of_parts(calls)]
    imports_submodules = any(ast.unparse(call.func) == "import_submodules" for call in calls)
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [*node.body[_has_docstring(node) :]]
    return [hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported, imports_submodules]


@dataclass
class _Known:
    """What `_read` gave for sources by their SHA-256, kept beside the compiled scripts: to parse all takes a second."""

    file: Path
    files: dict[str, list[Any]] = field(default_factory=dict)
    is_new: bool = False

    def keep(self) -> None:
        """Write the file if something was added; where it cannot be written, the next process parses again."""
        if self.is_new:
            with contextlib.suppress(OSError):
                write_text(self.file, json.dumps({"by": _reader(), "files": self.files}))
        self.is_new = False


@functools.cache
def _known(scripts: Path) -> _Known:
    known = _Known(scripts / "__pycache__" / "code_version.json")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(known.file.read_bytes())
        if kept["by"] == _reader() and len(kept["files"]) < MOST_KNOWN:
            known.files = dict(kept["files"])
    return known


def _reader() -> str:
    """What else the result of `_read` depends on: this module, and the Python whose syntax tree it is."""
    return f"{sys.version} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _imports(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "study")


def _of_parts(calls: list[ast.Call]) -> Iterator[str]:
    """What calls of ``submodule`` import: the module ``package.*.name``."""
    for call in calls:
        match call:
            case ast.Call(func=ast.Name("submodule"), args=[ast.Constant(str(package)), _, ast.Constant(str(name))]):
                yield f"{package}.*.{name}"


def _submodules(path: Path) -> Iterator[str]:
    """All modules of a package that calls ``import_submodules``."""
    for module in sorted(path.parent.rglob("*.py")):
        yield ".".join(module.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__")
