"""Loss functions by their names in Keras, each the mean over a batch, and the metrics of a workload.

A classifier's outputs are those before its last activation: Keras computes the cross-entropy from them too, for softmax
and, with more than one class, for sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from study.core.errors import StudyError
from study.experiment.metric_names import check_distinct, check_metric_names
from study.workloads.base import Benchmark
from study.workloads.pytorch import Metric, build_accuracy

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "categorical_crossentropy": functional.cross_entropy,
    "binary_crossentropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "mae": functional.l1_loss,
}
LOGIT_LOSSES = ("categorical_crossentropy", "binary_crossentropy")  # which take outputs before the last activation


def get_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss function, of (outputs, right outputs), by its name in Keras.

    Raises:
        StudyError: there is no loss of this name.
    """
    if name not in LOSSES:
        raise StudyError(f"loss: {name}: with framework: pytorch use {', '.join(LOSSES)}")
    return LOSSES[name]


def make_metrics(benchmark: Benchmark) -> list[Metric]:
    """Make new metrics of the benchmark.

    Raises:
        StudyError: one is no metric, two have the same name, or one has a reserved name.
    """
    where, metrics = type(benchmark).__module__, []
    threshold = 0.0 if benchmark.spec["loss"] in LOGIT_LOSSES else 0.5
    for each in benchmark.metrics():
        metric = build_accuracy(threshold) if each == "accuracy" else each
        if not isinstance(metric, Metric):
            raise StudyError(
                f"{where}: metrics: {each!r} is neither accuracy nor a Metric of study.workloads.pytorch, such as Mean"
            )
        metrics.append(metric)
    names = [each.name for each in metrics]
    check_distinct(names, where)
    if "loss" in names:
        raise StudyError(f"{where}: metrics: 'loss' is the name of the loss itself; give it another name")
    check_metric_names(names, where)
    return metrics
