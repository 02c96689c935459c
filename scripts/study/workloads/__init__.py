"""The benchmarks: one package here and one YAML in ``config/benchmarks`` each.

A package has a class `Workload` for what is independent of a framework, and a module for each framework, such as
``tensorflow.py``, whose class `Benchmark` adds the model. A user's own Keras model may be a single module instead; its
class `Benchmark` is both.
"""

import importlib.util
import inspect
from types import ModuleType
from typing import TYPE_CHECKING, Any

from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.workloads.base import Benchmark, Workload

FOLDER = "scripts/study/workloads"
TENSORFLOW = "tensorflow"


def get(name: str, spec: dict[str, Any]) -> "Workload":
    """The workload of ``name``, made from its YAML's content; its model is not known.

    Raises:
        StudyError: there is none.
    """
    module = _module(name)
    return _class(module, name, "Workload" if hasattr(module, "Workload") else "Benchmark")(spec)


def with_model(name: str, spec: dict[str, Any], framework: str = TENSORFLOW) -> "Benchmark":
    """The workload of ``name`` with its model in ``framework``, which is imported.

    Raises:
        StudyError: there is none.
    """
    module = _module(name)
    if hasattr(module, "Workload") or framework != TENSORFLOW:
        module = importlib.import_module(f"{module.__name__}.{framework}")
    return _class(module, name, "Benchmark")(spec)


def file_of(name: str) -> str:
    """The path of the module of a benchmark's `Workload`, in messages."""
    return _file(_module(name))


def _module(name: str) -> ModuleType:
    """The module or package of a benchmark, whatever the framework."""
    if importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise StudyError(f"config/benchmarks/{name}.yaml has no {FOLDER}/{name}.py beside it; see docs/extending.md")
    return importlib.import_module(f"{__name__}.{name}")


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
