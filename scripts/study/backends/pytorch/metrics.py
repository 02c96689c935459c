"""The metrics of a workload, with names that this project can report."""

from __future__ import annotations

from study.backends.pytorch.losses import OF_LOGITS
from study.core.errors import StudyError
from study.experiment.metric_names import check, check_different
from study.workloads.base import Benchmark
from study.workloads.pytorch import Metric, accuracy


def made(benchmark: Benchmark) -> list[Metric]:
    """The benchmark's metrics, anew.

    Raises:
        StudyError: one is none, two have one name, or one has a name that is taken.
    """
    where, found = type(benchmark).__module__, []
    threshold = 0.0 if benchmark.spec["loss"] in OF_LOGITS else 0.5
    for each in benchmark.metrics():
        metric = accuracy(threshold) if each == "accuracy" else each
        if not isinstance(metric, Metric):
            raise StudyError(
                f"{where}: metrics: {each!r} is neither accuracy nor a Metric of study.workloads.pytorch, such as Mean"
            )
        found.append(metric)
    names = [each.name for each in found]
    check_different(names, where)
    if "loss" in names:
        raise StudyError(f"{where}: metrics: 'loss' is the name of the loss itself; give it another name")
    check(names, where)
    return found
