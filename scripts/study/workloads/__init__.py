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


def load_workload(name: str, spec: dict[str, Any]) -> "Workload":
    """The workload of a benchmark, without its model, so that no framework is imported. spec: the benchmark's YAML.

    Raises:
        StudyError: there is none.
    """
    if spec.get("kind") == "command":
        return _find_class(importlib.import_module(f"{__name__}.command.workload"), name, "Workload")(spec)
    module = _import_module(name)
    return _find_class(module, name, "Benchmark" if _is_single(module) else "Workload")(spec)


def load_benchmark(name: str, spec: dict[str, Any], framework: str = TENSORFLOW) -> "Benchmark":
    """The workload of a benchmark with its model in ``framework``, which is imported. spec: the benchmark's YAML.

    Raises:
        StudyError: there is none.
    """
    if why := explain_missing_model(name, framework):
        raise StudyError(f"config/benchmarks/{name}.yaml: {why}")
    module = _import_module(name)
    if not _is_single(module):
        module = importlib.import_module(f"{module.__name__}.{framework}")
    return _find_class(module, name, "Benchmark")(spec)


def explain_missing_model(name: str, framework: str) -> str | None:
    """The reason why a benchmark has no model in a framework, with the file that it lacks; None if it has one.

    The framework is not imported.
    """
    module = _import_module(name)
    if _is_single(module):
        only = _find_class(module, name, "Benchmark").framework
        return None if framework == only else f"{name} has a model in {only} only; give framework: {only}"
    if importlib.util.find_spec(f"{module.__name__}.{framework}"):
        return None
    return f"{name} has no model in {framework}: there is no {FOLDER}/{name}/{framework}.py; see docs/extending.md"


def locate_module(name: str) -> str:
    """Path of the module of a benchmark's `Workload`, for messages."""
    return _format_path(_import_module(name))


def _import_module(name: str) -> ModuleType:
    """Import the module or package of a benchmark; raises `StudyError` if there is none."""
    path = f"{__name__}.{name}"
    if path in sys.modules:  # a plan asks for it hundreds of times per run
        return sys.modules[path]
    if importlib.util.find_spec(path) is None:
        raise StudyError(f"config/benchmarks/{name}.yaml has no {FOLDER}/{name}.py beside it; see docs/extending.md")
    return importlib.import_module(path)


def _is_single(module: ModuleType) -> bool:
    """Whether a benchmark is a single module, whose class `Benchmark` is both workload and model."""
    return not (hasattr(module, "__path__") and hasattr(module, "Workload"))


def _find_class(module: ModuleType, name: str, kind: str) -> Any:
    """The class ``kind`` of a benchmark's module; raises `StudyError` if there is none, or it lacks methods."""
    found_class = getattr(module, kind, None)
    if found_class is None or inspect.isabstract(found_class):
        raise StudyError(
            f"config/benchmarks/{name}.yaml: {_format_path(module)} has no complete class {kind}; a module "
            "that benchmarks share is none, so give the benchmark another name"
        )
    return found_class


def _format_path(module: ModuleType) -> str:
    """Path of a module, for messages."""
    parts = module.__name__.split(".")[2:]
    return "/".join([FOLDER, *parts]) + ("/__init__.py" if hasattr(module, "__path__") else ".py")
