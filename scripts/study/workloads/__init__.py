"""The benchmarks: one package here and one YAML in ``config/benchmarks`` each.

A package has a class `Workload` for what is independent of a framework, and a module for each framework, such as
``tensorflow.py``, whose class `Benchmark` adds the model. A user's own model may be a single module instead; its class
`Benchmark` is both, and says which ``framework`` it needs.
"""

import importlib.util
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.workloads.base import Benchmark, Workload

FOLDER = "scripts/study/workloads"
TENSORFLOW = "tensorflow"  # the framework of a run that names none


def get(name: str, spec: dict[str, Any]) -> "Workload":
    """The workload of ``name``, made from its YAML's content; its model is not known.

    Raises:
        StudyError: there is none.
    """
    if spec.get("kind") == "command":
        return _class(importlib.import_module(f"{__name__}.command.workload"), name, "Workload")(spec)
    module = _module(name)
    return _class(module, name, "Benchmark" if _is_single(module) else "Workload")(spec)


def with_model(name: str, spec: dict[str, Any], framework: str = TENSORFLOW) -> "Benchmark":
    """The workload of ``name`` with its model in ``framework``, which is imported.

    Raises:
        StudyError: there is none.
    """
    if why := missing(name, framework):
        raise StudyError(f"config/benchmarks/{name}.yaml: {why}")
    module = _module(name)
    if not _is_single(module):
        module = importlib.import_module(f"{module.__name__}.{framework}")
    return _class(module, name, "Benchmark")(spec)


def missing(name: str, framework: str) -> str | None:
    """Why a benchmark has no model in a framework, with the file that it lacks; None if it has one.

    The framework is not imported.
    """
    module = _module(name)
    if _is_single(module):
        own = _class(module, name, "Benchmark").framework
        return None if framework == own else f"{name} has a model in {own} only; give framework: {own}"
    if importlib.util.find_spec(f"{module.__name__}.{framework}"):
        return None
    return f"{name} has no model in {framework}: there is no {FOLDER}/{name}/{framework}.py; see docs/extending.md"


def file_of(name: str) -> str:
    """The path of the module of a benchmark's `Workload`, in messages."""
    return _file(_module(name))


def _module(name: str) -> ModuleType:
    """The module or package of a benchmark, whatever the framework."""
    path = f"{__name__}.{name}"
    if path in sys.modules:  # a plan asks for it hundreds of times per run
        return sys.modules[path]
    if importlib.util.find_spec(path) is None:
        raise StudyError(f"config/benchmarks/{name}.yaml has no {FOLDER}/{name}.py beside it; see docs/extending.md")
    return importlib.import_module(path)


def _is_single(module: ModuleType) -> bool:
    """Whether a module's class `Benchmark` is both workload and Keras model."""
    return not (hasattr(module, "__path__") and hasattr(module, "Workload"))


def _class(module: ModuleType, name: str, kind: str) -> Any:
    found = getattr(module, kind, None)
    if found is None or inspect.isabstract(found):
        raise StudyError(
            f"config/benchmarks/{name}.yaml: {_file(module)} has no complete class {kind}; a module "
            "that benchmarks share is none, so give the benchmark another name"
        )
    return found


def _file(module: ModuleType) -> str:
    """The path of a module in messages."""
    parts = module.__name__.split(".")[2:]
    return "/".join([FOLDER, *parts]) + ("/__init__.py" if hasattr(module, "__path__") else ".py")
