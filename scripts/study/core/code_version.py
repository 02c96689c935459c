"""Version of the code that made a file: a digest of scripts and of all modules of the study that they import."""

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from study.core.paths import SCRIPTS

# Code that can change a run's numbers: the training process, the sampler process, and what starts and times the ranks.
RUN = ("train.py", "sample_power.py", "horovodrun.py", "strategyrun.py", "study.launch.supervision",
       "study.launch.variables", "study.machines.guard", "study.machines.remote")  # fmt: skip
# Declarations: a new grid key with a default does not change earlier results. Declared values that can change the
# output of a step are among the params of its rule.
DECLARATIONS = "study/experiment/parameters/"


def training_code(benchmark: str) -> str:
    """The digest of all code that can change the numbers of a training run of ``benchmark``, and of nothing else."""
    return digest(*RUN, f"study.models.{benchmark}")


def loading_code() -> str:
    """The digest of all code that affects a loading measurement."""
    return digest("measure_loading.py", "load_file.py", "load_images.py", "store_matrix.py")


@functools.cache
def digest(*entries: str) -> str:
    """12 hex digits over the ``entries`` and everything that they import from ``study``.

    An entry is a script's file name or a module. Imports are read from the source, including imports inside functions.
    A package that calls `study.core.registry.import_submodules` counts as importing all its modules; any other module
    imported by a computed name must be given as an entry. `DECLARATIONS` are left out.
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
        total.update(hashlib.sha256(found[name]).digest())
    return total.hexdigest()[:12]


def _collect(path: Path, found: dict[str, bytes]) -> None:
    name = path.relative_to(SCRIPTS).as_posix()
    if name in found or name.startswith(DECLARATIONS):
        return
    found[name], modules = _source(path)
    for module in modules:
        _collect_module(module, found)


def _collect_module(module: str, found: dict[str, bytes]) -> None:
    base = SCRIPTS.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            _collect(path, found)
    compiled = base.with_suffix(".cpp")
    if compiled.exists():
        found[compiled.relative_to(SCRIPTS).as_posix()] = compiled.read_bytes()


@functools.cache
def _source(path: Path) -> tuple[bytes, tuple[str, ...]]:
    """A file's code, and the modules of the study that it imports; cached, since many entries share files.

    The code is without comments, docstrings and layout: to reword them changes no number.
    """
    tree = ast.parse(path.read_bytes())
    imported = (*_imports(tree), *_submodules(tree, path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [*node.body[_has_docstring(node) :]]
    return ast.dump(tree).encode(), imported


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "study")


def _submodules(tree: ast.AST, path: Path) -> Iterator[str]:
    """All modules of a package that calls ``import_submodules``."""
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if path.name == "__init__.py" and "import_submodules" in called:
        for module in sorted(path.parent.rglob("*.py")):
            yield ".".join(module.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__")
