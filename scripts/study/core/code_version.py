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
RUN_ENTRIES = ("train.py", "sample_power.py", "horovodrun.py", "strategyrun.py", "study.launch.supervision",
       "study.launch.variables", "study.machines.guard", "study.machines.remote")  # fmt: skip
# The same of a program that is given by a command.
COMMAND_ENTRIES = ("run_command.py", "run_processes.py", "sample_power.py", "study.training.program_results",
              "study.launch.supervision", "study.machines.guard", "study.machines.remote")  # fmt: skip
# Declarations: a new grid key with a default does not change earlier results. Declared values that can change the
# output of a step are among the params of its rule.
DECLARATIONS = "study/experiment/parameters/"
# Modules in which loaders, formats of images and power sensors are registered, of which a run uses some; and by what.
# The commands of study.commands are registered too: a script in scripts/ starts one of them.
REGISTERING = ("study.data.loaders", "study.data.images.formats", "study.instruments.power.sensors")
REGISTER = ("_loader", "FORMATS.register", "SENSORS.register", "step", "verb")
MOST_KNOWN = 2000  # sources, after which those of old versions are forgotten


def digest_training_code(*benchmarks: str, framework: str) -> str:
    """Digest of the code that can change a training run's numbers, without its loader and sensors.

    Runs with other loaders, or on machines with other sensors, are compared by it.

    Args:
        benchmarks: that it trains; several in an ensemble of different networks.
        framework: that trains them.
    """
    return digest_code(*_list_training_entries(benchmarks, framework), used=frozenset())


def list_training_files(*benchmarks: str, framework: str) -> list[Path]:
    """The files of `digest_training_code`."""
    return _list_files(_list_training_entries(benchmarks, framework))


def list_command_files() -> list[Path]:
    """The files of this project in `digest_command_code`."""
    return _list_files(COMMAND_ENTRIES)


def _list_training_entries(benchmarks: Iterable[str], framework: str) -> tuple[str, ...]:
    workloads = [f"study.workloads.{name}" for name in benchmarks]
    models = [f"{workload}.{framework}" for workload in workloads]
    return (*RUN_ENTRIES, f"study.backends.{framework}", f"study.backends.{framework}.backend", *workloads, *models)


def _list_files(entries: Iterable[str]) -> list[Path]:
    """The files that the entries of `digest_code` are and import."""
    return sorted({SCRIPTS / name.partition(" ")[0] for name in _collect_parts(entries, frozenset())})


def digest_command_code(content: str) -> str:
    """Digest of the code of a run given by a command. content: digest of the program's own code."""
    ours = digest_code(*COMMAND_ENTRIES, used=frozenset())
    return digests.shorten_digest(hashlib.sha256(f"{ours} {content}".encode()).hexdigest())


def digest_loader_and_sensors(loader: str, sensors: Iterable[str]) -> str:
    """Digest of the code of a run's loader and measured power sensors; modelled power is training code."""
    return digest_code(*REGISTERING, used=frozenset({loader, *sensors}))


def digest_loading_code() -> str:
    """Digest of all code that affects a loading measurement."""
    scripts = ("load_file.py",)
    return digest_code(*scripts, "study.data.loader_timing", "study.backends.tensorflow.matrix_records")


def digest_step_code(name: str, *modules: str) -> str:
    """Digest of the code behind scripts/NAME.py. modules: what it imports by a computed name."""
    return digest_code(f"{name}.py", *modules, used=frozenset({name}))


@functools.cache
def digest_code(*entries: str, used: frozenset[str] | None = None) -> str:
    """Digest (12 digits) of the ``entries`` and of everything that they import from ``study``.

    An entry is a script's file name or a module. Imports are read from the source, including imports inside functions.
    A package that calls `study.core.registry.import_submodules` counts as importing all its modules, and a module that
    calls `submodule` there as importing that module of all parts. Any other module imported by a computed name must be
    given as an entry. `DECLARATIONS` are left out.

    used: names; of what is registered by `REGISTER`, other names are left out, unless their own module calls them.
    """
    digests_by_part = _collect_parts(entries, used)
    total = hashlib.sha256()
    for name in sorted(digests_by_part):
        total.update(f"{name}\0".encode())
        total.update(digests_by_part[name])
    _load_cache(SCRIPTS).keep()
    return digests.shorten_digest(total.hexdigest())


def _collect_parts(entries: Iterable[str], used: frozenset[str] | None) -> dict[str, bytes]:
    """The digest of each used part of the entries and of all that they import, by file and part."""
    digests_by_part: dict[str, bytes] = {}
    for entry in entries:
        if entry.endswith(".py"):
            _collect_file(SCRIPTS / entry, digests_by_part, used)
        else:
            _collect_module(entry, digests_by_part, used)
    return digests_by_part


def _collect_file(path: Path, digests_by_part: dict[str, bytes], used: frozenset[str] | None = None) -> None:
    """Add the digests of a file's used parts, and of all modules that they import, to ``digests_by_part``."""
    name = _name_source(path)
    if name in digests_by_part or name.startswith(DECLARATIONS):
        return
    source = _read_source(path)
    submodules = _list_submodules(path, used) if source.imports_submodules and path.name == "__init__.py" else ()
    digests_by_part[name] = bytes.fromhex(source.rest.code)
    modules = [*source.rest.imported, *submodules]
    for part in _select_used_parts(source, used):
        digests_by_part[f"{name} {part.name}"] = bytes.fromhex(part.code)
        modules += part.imported
    for module in modules:
        _collect_module(module, digests_by_part, used)


@functools.cache
def _name_source(path: Path) -> str:
    """A source file's path below `SCRIPTS`; thousands of times the same few hundred are asked for."""
    return path.relative_to(SCRIPTS).as_posix()


def _collect_module(module: str, digests_by_part: dict[str, bytes], used: frozenset[str] | None = None) -> None:
    """Add the digests of a module's sources, as `_collect_file`."""
    sources, compiled = _find_sources(SCRIPTS, module)
    for path in sources:
        _collect_file(path, digests_by_part, used)
    if compiled:
        digests_by_part[compiled.relative_to(SCRIPTS).as_posix()] = hashlib.sha256(compiled.read_bytes()).digest()


@functools.cache
def _find_sources(scripts: Path, module: str) -> tuple[tuple[Path, ...], Path | None]:
    """Paths of a module's or package's Python sources and of its C++ source; none for a name inside a module.

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


def _select_used_parts(source: _Source, used: frozenset[str] | None) -> list[_Part]:
    """The parts registered under a used name, and those that the rest of the file or another used part mentions."""
    unused, used_parts = list(source.parts), [source.rest]
    for part in used_parts:
        newly_used = [each for each in unused if part is source.rest and (used is None or each.registered in used)]
        newly_used += [each for each in unused if each.name in part.names and each not in newly_used]
        used_parts += newly_used
        unused = [each for each in unused if each not in newly_used]
    return used_parts[1:]


@functools.cache
def _read_source(path: Path) -> _Source:
    """The parts of a file, cached since many entries share files."""
    source = path.read_bytes()
    cache, key = _load_cache(SCRIPTS), hashlib.sha256(source).hexdigest()
    if key not in cache.files:
        cache.files[key] = _parse_source(source)
        cache.is_new = True
    imports_submodules, *parts = cache.files[key]
    rest, *registered = [
        _Part(code, tuple(imported), frozenset(names), *others) for code, imported, names, *others in parts
    ]
    return _Source(rest, tuple(registered), imports_submodules)


def _parse_source(source: bytes) -> list[Any]:
    """[True if a source calls ``import_submodules``, the fields of each `_Part` with the rest first]."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    imports_submodules = "import_submodules" in {each.id for each in calls if isinstance(each, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [*node.body[_has_docstring(node) :]]
    registered = {node: name for node in tree.body if (name := _find_registered_name(node))}
    tree.body = [node for node in tree.body if node not in registered]
    functions = {getattr(node, "name", "") for node in registered}
    parts = [[*_describe_part(node, functions), name, getattr(node, "name", "")] for node, name in registered.items()]
    return [imports_submodules, _describe_part(tree, functions), *parts]


def _find_registered_name(node: ast.AST) -> str:
    """The name under which a function or class is registered by one of `REGISTER`, else an empty text."""
    for each in getattr(node, "decorator_list", ()):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in REGISTER:
            return str(ast.literal_eval(each.args[0]))
    return ""


def _describe_part(node: ast.AST, functions: set[str]) -> list[Any]:
    """The first fields of a `_Part`. functions: names of the file's registered functions; others do not matter."""
    nodes = list(ast.walk(node))
    mentioned = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    imported = [*_list_imports(nodes), *_list_imports_of_parts(nodes)]
    return [hashlib.sha256(ast.dump(node).encode()).hexdigest(), imported, sorted(mentioned & functions)]


@dataclass
class _SourceCache:
    """Results of `_parse_source` by the source's SHA-256, kept in a file beside the compiled scripts."""

    file: Path
    files: dict[str, list[Any]] = field(default_factory=dict)
    is_new: bool = False

    def keep(self) -> None:
        """Write the file if something was added; where it cannot be written, the next process parses again."""
        if self.is_new:
            with contextlib.suppress(OSError):
                write_text(self.file, json.dumps({"by": _identify_parser(), "files": self.files}))
        self.is_new = False


@functools.cache
def _load_cache(scripts: Path) -> _SourceCache:
    """The cache of parsed sources; empty if it is missing, damaged, full or of another Python."""
    cache = _SourceCache(scripts / "__pycache__" / "code_version.json")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(cache.file.read_bytes())
        if stored["by"] == _identify_parser() and len(stored["files"]) < MOST_KNOWN:
            cache.files = dict(stored["files"])
    return cache


def _identify_parser() -> str:
    """A text that changes if `_parse_source` may give another result: Python's version and this module's digest."""
    return f"{sys.version} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _list_imports(nodes: list[ast.AST]) -> Iterator[str]:
    """Modules and names imported from ``study`` in syntax nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "study")


def _list_imports_of_parts(nodes: list[ast.AST]) -> Iterator[str]:
    """Patterns ``package.*.name`` of the modules that calls of ``submodule`` import."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("submodule"), args=[ast.Constant(str(package)), _, ast.Constant(str(name))]):
                yield f"{package}.*.{name}"


def _list_submodules(path: Path, used: frozenset[str] | None) -> Iterator[str]:
    """Modules of a package that calls ``import_submodules``, without those that only register unused names."""
    for module in sorted(path.parent.rglob("*.py")):
        if module != path:
            source = _read_source(module)
            if not source.parts or _select_used_parts(source, used):
                yield ".".join(module.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__")
