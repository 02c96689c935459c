"""The benchmarks: one module here and one YAML in ``config/benchmarks`` each."""

import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.models.base import Benchmark


def get(name: str, spec: dict[str, Any]) -> "Benchmark":
    """The `Benchmark` object of ``name``, made from its YAML's content."""
    if importlib.util.find_spec(f"study.models.{name}") is None:
        raise StudyError(
            f"config/benchmarks/{name}.yaml has no scripts/study/models/{name}.py beside it; see docs/extending.md"
        )
    module = importlib.import_module(f"study.models.{name}")
    own = getattr(module, "Benchmark", None)
    if own is None or inspect.isabstract(own):
        raise StudyError(
            f"config/benchmarks/{name}.yaml: scripts/study/models/{name}.py has no complete class Benchmark; a module "
            "that benchmarks share is none, so give the benchmark another name"
        )
    return own(spec)
