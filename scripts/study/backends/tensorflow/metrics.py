"""The Keras metrics of a workload, with names that this project can report."""

from __future__ import annotations

import inspect
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
    return tf.nest.map_structure(_by_samples, metrics)


def _by_samples(metric: Any) -> Any:
    """A function that gives one value of a batch, which then counts for each sample; any other metric as it is.

    Keras's mean over such values would take a last batch of fewer samples for a whole one.
    """
    if not inspect.isfunction(metric):
        return metric
    import tensorflow as tf

    def of_samples(y_true: Any, y_pred: Any) -> Any:
        found = tf.convert_to_tensor(metric(y_true, y_pred))
        return tf.fill([tf.shape(y_pred)[0]], found) if found.shape.rank == 0 else found

    of_samples.__name__ = metric.__name__
    return of_samples


def _of(benchmark: Benchmark) -> str:
    return type(benchmark).__module__


def _name(metric: Any) -> str | None:
    """The name under which Keras reports a metric: a text, a function, or an object with a name."""
    if metric is None:
        return None
    return metric if isinstance(metric, str) else getattr(metric, "name", None) or getattr(metric, "__name__", None)
