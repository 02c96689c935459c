"""Version of the code that made a file: a digest of scripts and of all modules of the study that they import."""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.core import digests
from study.core.files import write_text
from study.core.paths import SCRIPTS

# Code that can change a run's numbers: the training process, the sampler process, and what starts and times the ranks.
RUN = ("train.py", "sample_power.py", "horovodrun.py", "strategyrun.py", "study.launch.supervision",
       "study.launch.variables", "study.machines.guard", "study.machines.remote")  # fmt: skip
# The same of a program that is given by a command.
OF_COMMAND = ("run_command.py", "run_processes.py", "sample_power.py", "study.training.program_results",
              "study.launch.supervision", "study.machines.guard", "study.machines.remote")  # fmt: skip
# Declarations: a new grid key with a default does not change earlier results. Declared values that can change the
# output of a step are among the params of its rule.
DECLARATIONS = "study/experiment/parameters/"
# Modules in which loaders, formats of images and power sensors are registered, of which a run uses some; and by what.
# The commands of study.commands are registered too: a script in scripts/ starts one of them.
REGISTERING = ("study.data.loaders", "study.data.images.formats", "study.instruments.power.sensors")
REGISTER = ("_loader", "FORMATS.register", "SENSORS.register", "step", "verb")
MOST_KNOWN = 2000  # sources, after which those of old versions are forgotten


def training_code(*benchmarks: str, framework: str) -> str:
    """The digest of the code that can change the numbers of a training run, but for `loader_sensor_code`.

    Runs with other loaders, or on machines with other sensors, are compared by it.

    Args:
        benchmarks: that it trains; several in an ensemble of different networks.
        framework: that trains them.
    """
    workloads = [f"study.workloads.{name}" for name in benchmarks]
    models = [f"{workload}.{framework}" for workload in workloads]
    backend = (f"study.backends.{framework}", f"study.backends.{framework}.backend")
    return digest(*RUN, *backend, *workloads, *models, used=frozenset())


def command_code(content: str) -> str:
    """The digest of the code of a run that is given by a command. content: digest of the program's own code."""
    ours = digest(*OF_COMMAND, used=frozenset())
    return digests.short(hashlib.sha256(f"{ours} {content}".encode()).hexdigest())


def loader_sensor_code(loader: str, sensors: Iterable[str]) -> str:
    """The digest of the code of a run's loader and power sensors; a modelled power is in `training_code`."""
    return digest(*REGISTERING, used=frozenset({loader, *sensors}))


def loading_code() -> str:
    """The digest of all code that affects a loading measurement."""
    scripts = ("load_file.py", "load_images.py", "store_matrix.py")
    return digest(*scripts, "study.data.loader_timing", "study.backends.tensorflow.matrix_records")


def step_code(name: str, *modules: str) -> str:
    """The digest of the command that scripts/NAME.py starts. modules: what it imports by a computed name."""
    return digest(f"{name}.py", *modules, used=frozenset({name}))


@functools.cache
def digest(*entries: str, used: frozenset[str] | None = None) -> str:
    """12 hex digits over the ``entries`` and everything that they import from ``study``.

    An entry is a script's file name or a module. Imports are read from the source, including imports inside functions.
    A package that calls `study.core.registry.import_submodules` counts as importing all its modules, and a module that
    calls `submodule` there as importing that module of all parts. Any other module imported by a computed name must be
    given as an entry. `DECLARATIONS` are left out.

    used: names; of what is registered by `REGISTER`, other names are left out, unless their own module calls them.
    """
    found: dict[str, bytes] = {}
    for entry in entries:
        if entry.endswith(".py"):
            _collect(SCRIPTS / entry, found, used)
        else:
            _collect_module(entry, found, used)
    total = hashlib.sha256()
    for name in sorted(found):
        total.update(f"{name}\0".encode())
        total.update(found[name])
    _known(SCRIPTS).keep()
    return digests.short(total.hexdigest())


def _collect(path: Path, found: dict[str, bytes], used: frozenset[str] | None = None) -> None:
    name = path.relative_to(SCRIPTS).as_posix()
    if name in found or name.startswith(DECLARATIONS):
        return
    source = _source(path)
    submodules = _submodules(path, used) if source.imports_submodules and path.name == "__init__.py" else ()
    found[name] = bytes.fromhex(source.rest.code)
    modules = [*source.rest.imported, *submodules]
    for part in _parts_in_use(source, used):
        found[f"{name} {part.name}"] = bytes.fromhex(part.code)
        modules += part.imported
    for module in modules:
        _collect_module(module, found, used)


def _collect_module(module: str, found: dict[str, bytes], used: frozenset[str] | None = None) -> None:
    sources, compiled = _files_of(SCRIPTS, module)
    for path in sources:
        _collect(path, found, used)
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


@dataclass(frozen=True)
class _Part:
    """A part of a source: what is registered, with its name and the function's or class's, or all the rest.

    code: SHA-256, without comments, docstrings and layout, since to reword them changes no number. imported: modules of
    the study. names: that it mentions.
    """

    code: str
    imported: tuple[str, ...]
    names: frozenset[str]
    registered: str = ""
    name: str = ""


@dataclass(frozen=True)
class _Source:
    """A file's parts. imports_submodules: whether it calls ``import_submodules``."""

    rest: _Part
    parts: tuple[_Part, ...]
    imports_submodules: bool


def _parts_in_use(source: _Source, used: frozenset[str] | None) -> list[_Part]:
    """What is registered under a used name, and what the rest of the file or another part in use mentions."""
    left, chosen = list(source.parts), [source.rest]
    for part in chosen:
        now = [each for each in left if part is source.rest and (used is None or each.registered in used)]
        now += [each for each in left if each.name in part.names and each not in now]
        chosen += now
        left = [each for each in left if each not in now]
    return chosen[1:]


@functools.cache
def _source(path: Path) -> _Source:
    """The parts of a file; cached, since many entries share files."""
    source = path.read_bytes()
    known, key = _known(SCRIPTS), hashlib.sha256(source).hexdigest()
    if key not in known.files:
        known.files[key] = _read(source)
        known.is_new = True
    imports_submodules, *parts = known.files[key]
    rest, *registered = [
        _Part(code, tuple(imported), frozenset(names), *others) for code, imported, names, *others in parts
    ]
    return _Source(rest, tuple(registered), imports_submodules)


def _read(source: bytes) -> list[Any]:
    """[whether it calls ``import_submodules``, the fields of each `_Part`, the rest's first] of a file's source."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    imports_submodules = "import_submodules" in {each.id for each in calls if isinstance(each, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [*node.body[_has_docstring(node) :]]
    registered = {node: name for node in tree.body if (name := _registered(node))}
    tree.body = [node for node in tree.body if node not in registered]
    functions = {getattr(node, "name", "") for node in registered}
    parts = [[*_facts(node, functions), name, getattr(node, "name", "")] for node, name in registered.items()]
    return [imports_submodules, _facts(tree, functions), *parts]


def _registered(node: ast.AST) -> str:
    """The name under which a function or class is registered by one of `REGISTER`, else an empty text."""
    for each in getattr(node, "decorator_list", ()):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in REGISTER:
            return str(ast.literal_eval(each.args[0]))
    return ""


def _facts(node: ast.AST, functions: set[str]) -> list[Any]:
    """The first fields of a `_Part`. functions: registered ones of the file; other names do not matter."""
    nodes = list(ast.walk(node))
    mentioned = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    imported = [*_imports(nodes), *_of_parts(nodes)]
    return [hashlib.sha256(ast.dump(node).encode()).hexdigest(), imported, sorted(mentioned & functions)]


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


def _of_parts(nodes: list[ast.AST]) -> Iterator[str]:
    """What calls of ``submodule`` import: the module ``package.*.name``."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("submodule"), args=[ast.Constant(str(package)), _, ast.Constant(str(name))]):
                yield f"{package}.*.{name}"


def _submodules(path: Path, used: frozenset[str] | None) -> Iterator[str]:
    """The modules of a package that calls ``import_submodules``, but for those that only register what is not used."""
    for module in sorted(path.parent.rglob("*.py")):
        if module != path:
            source = _source(module)
            if not source.parts or _parts_in_use(source, used):
                yield ".".join(module.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__")
