"""The Keras metrics of a workload, with names that this project can report."""

from __future__ import annotations

import inspect
from typing import Any

from study.backends.tensorflow import own_models
from study.core.errors import StudyError
from study.experiment.metric_names import check_distinct, check_metric_names
from study.workloads.base import Benchmark


def make_metrics(benchmark: Benchmark) -> list[Any]:
    """Make new metrics of the benchmark; Keras's numbers in their names start from the benchmark's first metric.

    Raises:
        StudyError: two have the same name, or one has a reserved name.
    """
    with own_models.reset_keras_names():
        metrics = benchmark.metrics()
    import tensorflow as tf

    names = [_find_name(each) for each in tf.nest.flatten(metrics)]
    if not isinstance(metrics, dict):  # of a dict, Keras puts the output's name before each
        check_distinct([name for name in names if name is not None], _name_module(benchmark))
    if "loss" in names:
        raise StudyError(
            f"{_name_module(benchmark)}: metrics: 'loss' is the name of the loss itself; give it another name"
        )
    check_metric_names((name for name in names if name is not None), _name_module(benchmark))
    return tf.nest.map_structure(_repeat_for_samples, metrics)


def _repeat_for_samples(metric: Any) -> Any:
    """Make a metric that is a function of a batch count for each of its samples; any other metric stays as it is.

    Keras's mean over such values would take a last batch of fewer samples for a whole one.
    """
    if not inspect.isfunction(metric):
        return metric
    import tensorflow as tf

    def compute_for_samples(y_true: Any, y_pred: Any) -> Any:
        values = tf.convert_to_tensor(metric(y_true, y_pred))
        return tf.fill([tf.shape(y_pred)[0]], values) if values.shape.rank == 0 else values

    compute_for_samples.__name__ = metric.__name__
    return compute_for_samples


def _name_module(benchmark: Benchmark) -> str:
    """The module of a benchmark, for messages."""
    return type(benchmark).__module__


def _find_name(metric: Any) -> str | None:
    """The name under which Keras reports a metric, which is a text, a function, or an object with a name."""
    if metric is None:
        return None
    return metric if isinstance(metric, str) else getattr(metric, "name", None) or getattr(metric, "__name__", None)
