"""The published numbers of the PRACE guide, and what follows from them without a run."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from study.core.registry import Registry
from study.report.papers.claims import Range
from study.report.papers.values import selected, values
from study.report.tables.summary import published

SCALING, LOOPS, TEXT = (
    "prace2019_table8_9_resnet50_scaling.csv", "prace2019_table13_keras_vs_tensorflow.csv", "prace2019_text.csv",
)  # fmt: skip
BATCH_SIZE = 64  # of a worker (Table 7)
IMAGES = 1_280_000  # ImageNet's, as the guide rounds them (Table 5)

DERIVED: Registry[Callable[[dict[str, Any]], float]] = Registry("number derived from prace2019")


def number(claim: pd.Series) -> Range:
    """The published side of a row of ``prace2019_claims.csv``; all NaN if the guide has no number."""
    if claim["derived_by"] is None:
        return (math.nan,) * 3
    return DERIVED[claim["derived_by"]](values(claim["of"])), math.nan, math.nan


def images_per_s(framework: str, gpus: int) -> float:
    """A cell of Table 8 (mxnet, real data) or Table 9 (pytorch_horovod, synthetic data)."""
    return _cell(SCALING, "images_per_s", framework=framework, gpus=gpus)


def _cell(file: str, column: str, **where: Any) -> float:
    """The value of the one row with these values."""
    rows = selected(published(file), where)
    if len(rows) != 1:
        raise ValueError(f"{file}: {where}: {len(rows)} rows instead of one")
    return float(rows[column].iloc[0])


def _told(measure: str) -> float:
    return _cell(TEXT, "value", measure=measure)


@DERIVED.register("text")
def _text(of: dict[str, Any]) -> float:
    return _cell(TEXT, "value", **of)


@DERIVED.register("real_over_synthetic")
def _real_over_synthetic(of: dict[str, Any]) -> float:
    return images_per_s("mxnet", 4) / _told("synthetic_images_per_s_4_gpus")


@DERIVED.register("efficiency")
def _efficiency(of: dict[str, Any]) -> float:
    framework, gpus = of["framework"], of["gpus"]
    return images_per_s(framework, gpus) / images_per_s(framework, 1) / gpus


@DERIVED.register("frameworks_on_synthetic")
def _frameworks_on_synthetic(of: dict[str, Any]) -> float:
    return images_per_s("pytorch_horovod", 4) / _told("synthetic_images_per_s_4_gpus")


@DERIVED.register("frameworks_in_tables")
def _frameworks_in_tables(of: dict[str, Any]) -> float:
    return images_per_s("pytorch_horovod", 4) / images_per_s("mxnet", 4)


@DERIVED.register("tensorflow_over_keras")
def _tensorflow_over_keras(of: dict[str, Any]) -> float:
    keras, own = (_cell(LOOPS, "time_per_epoch_s", framework=name) for name in ("keras", "tensorflow"))
    return keras / own


@DERIVED.register("nodes_efficiency")
def _nodes_efficiency(of: dict[str, Any]) -> float:
    return _told("speedup_448_nodes") / 448


@DERIVED.register("read_rate_of_all_nodes")
def _read_rate_of_all_nodes(of: dict[str, Any]) -> float:
    return _told("nodes_of_the_run") * _told("read_rate_of_a_node") / 1000


@DERIVED.register("nodes_of_the_command")
def _nodes_of_the_command(of: dict[str, Any]) -> float:
    return _told("ranks_of_the_command") / _told("ranks_per_node_of_the_command")


@DERIVED.register("epochs_of_the_command")
def _epochs_of_the_command(of: dict[str, Any]) -> float:
    return _told("steps_of_the_command") * _told("global_batch_of_the_command") / IMAGES
