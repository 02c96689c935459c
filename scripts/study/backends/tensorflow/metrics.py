"""The Keras metrics of a workload, with names that this project can report."""

from __future__ import annotations

from typing import Any

from study.backends.tensorflow import own_models
from study.core.errors import StudyError
from study.experiment.metric_names import check, check_different
from study.workloads.base import Benchmark


def made(benchmark: Benchmark) -> list[Any]:
    """The benchmark's metrics, anew; Keras's numbers in their names count from this benchmark's first.

    Raises:
        StudyError: two have one name, or one has a name that is taken.
    """
    with own_models.fresh_names():
        metrics = benchmark.metrics()
    import tensorflow as tf

    names = [_name(each) for each in tf.nest.flatten(metrics)]
    if not isinstance(metrics, dict):  # of a dict, Keras puts the output's name before each
        check_different([name for name in names if name is not None], _of(benchmark))
    if "loss" in names:
        raise StudyError(f"{_of(benchmark)}: metrics: 'loss' is the name of the loss itself; give it another name")
    check((name for name in names if name is not None), _of(benchmark))
    return metrics


def _of(benchmark: Benchmark) -> str:
    return type(benchmark).__module__


def _name(metric: Any) -> str | None:
    """The name under which Keras reports a metric: a text, a function, or an object with a name."""
    if metric is None:
        return None
    return metric if isinstance(metric, str) else getattr(metric, "name", None) or getattr(metric, "__name__", None)
