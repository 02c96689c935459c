"""The benchmarks: one module here and one YAML in ``config/benchmarks`` each."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.models.base import Benchmark
import importlib.util

from study.core.errors import StudyError


def get(name: str, spec: dict[str, Any]) -> "Benchmark":
    """The `Benchmark` object of ``name``, made from its YAML's content."""
    if importlib.util.find_spec(f"study.models.{name}") is None:
        raise StudyError(
            f"config/benchmarks/{name}.yaml has no scripts/study/models/{name}.py beside it; see docs/extending.md"
        )
    return importlib.import_module(f"study.models.{name}").Benchmark(spec)
