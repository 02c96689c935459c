"""The named mechanisms of the performance model: how each grows with the ranks. Their priors are in config/prediction.

A column is computed from a frame of settings, one row per point, see `study.prediction.settings`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from study.core import configuration
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.registry import Registry
from study.prediction.regression import Terms

FILE = CONFIG / "prediction" / "mechanisms.yaml"
GB = 1e3  # MB
MBIT_PER_GB = 8e3

Column = Callable[[pd.DataFrame], pd.Series]
COLUMNS: Registry[Column] = Registry("mechanism")
FIRST_EPOCH = ("first_epoch_constant", "first_epoch_doubling", "first_epoch_per_rank")
COMPUTE = ("compute_per_sample", "compute_per_step")


@functools.cache
def declared() -> dict[str, Any]:
    """The content of config/prediction/mechanisms.yaml; raises `StudyError` for an unknown mechanism or range."""
    content = configuration.load(FILE, "mechanisms")
    for quantity, mechanisms in content["quantities"].items():
        for name, prior in mechanisms.items():
            low, high = prior.get("range") or prior["share"]
            if low > high:
                raise StudyError(
                    f"{configuration.shown(FILE)}: quantities.{quantity}.{name}: the range goes from {low:g} to "
                    f"{high:g}; give the lower end first"
                )
            if name not in COLUMNS:
                raise StudyError(
                    f"{configuration.shown(FILE)}: quantities.{quantity}: there is no mechanism "
                    f"{name!r}{configuration.nearest(name, COLUMNS)}; known: {', '.join(COLUMNS)}"
                )
    return content


def columns(names: tuple[str, ...], settings: pd.DataFrame) -> np.ndarray:
    """Shape (settings, names)."""
    return np.stack([np.broadcast_to(COLUMNS[name](settings), len(settings)) for name in names], axis=1).astype(float)


def terms(quantity: str, x: pd.DataFrame, mean: float) -> Terms:
    """The terms of a quantity with their priors, without those that are 0 on any number of ranks.

    x: the settings that were measured. mean: of the measured values, for priors that are shares of it.
    """
    prior = declared()["quantities"][quantity]
    names = tuple(name for name in prior if _is_possible(name, x))
    sizes = columns(names, x).mean(axis=0)
    ranges = []
    for name, size in zip(names, sizes, strict=True):
        if "range" in prior[name]:
            ranges.append(prior[name]["range"])
        elif prior[name].get("always"):
            ranges.append([share * mean / size for share in prior[name]["share"]])
        else:
            ranges.append([share * mean for share in prior[name]["share"]])
    low, high = np.array(ranges, dtype=float).T
    always = np.array([prior[name].get("always", False) for name in names])
    return Terms(names, low, high, always, declared()["probability"])


def _is_possible(name: str, settings: pd.DataFrame) -> bool:
    """Whether a mechanism costs anything on several nodes with several ranks each."""
    several = settings.assign(ranks=4, nodes=2, ranks_per_node=2)
    return bool((columns((name,), several) > 0).any())


def _doublings(settings: pd.DataFrame) -> pd.Series:
    return np.log2(settings["ranks"])


def _ring(members: pd.Series) -> pd.Series:
    """Share of a message that a ring allreduce sends per member: 2 (n - 1) / n."""
    return 2 * (members - 1) / members


@COLUMNS.register("constant")
def _constant(settings: pd.DataFrame) -> pd.Series:
    return pd.Series(1.0, settings.index)


@COLUMNS.register("per_doubling")
@COLUMNS.register("tree_per_epoch")
def _per_doubling(settings: pd.DataFrame) -> pd.Series:
    return _doublings(settings)


@COLUMNS.register("per_rank")
def _per_rank(settings: pd.DataFrame) -> pd.Series:
    return settings["ranks"] - 1.0


@COLUMNS.register("per_rank_of_node")
def _per_rank_of_node(settings: pd.DataFrame) -> pd.Series:
    return settings["ranks_per_node"] - 1.0


@COLUMNS.register("allreduce_within_node")
def _allreduce_within_node(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * _ring(settings["ranks_per_node"]) * settings["gradient_mb"].fillna(0) / GB


@COLUMNS.register("allreduce_between_nodes")
def _allreduce_between_nodes(settings: pd.DataFrame) -> pd.Series:
    unlimited = ~(settings["link_mbit_per_s"] > 0)
    return settings["steps"] * _ring(settings["nodes"]) * settings["gradient_mb"].fillna(0) / GB * unlimited


@COLUMNS.register("allreduce_over_links")
def _allreduce_over_links(settings: pd.DataFrame) -> pd.Series:
    rate = settings["link_mbit_per_s"]
    gb_per_s = (rate / MBIT_PER_GB).where(rate > 0, np.inf)
    return settings["steps"] * _ring(settings["nodes"]) * settings["gradient_mb"].fillna(0) / GB / gb_per_s


@COLUMNS.register("latency_per_step")
def _latency_per_step(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * _doublings(settings)


@COLUMNS.register("coordinator_per_step")
def _coordinator_per_step(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * (settings["ranks"] - 1.0)


@COLUMNS.register("slowest_rank")
def _slowest_rank(settings: pd.DataFrame) -> pd.Series:
    return np.sqrt(2 * np.log(settings["ranks"]))


def _once_per_run(column: Column) -> Column:
    """What a run has once, as its share of each epoch."""
    return lambda settings: column(settings) / settings["epochs_per_rank"]


COLUMNS.add("first_epoch_constant", _once_per_run(_constant))
COLUMNS.add("first_epoch_doubling", _once_per_run(_per_doubling))
COLUMNS.add("first_epoch_per_rank", _once_per_run(_per_rank))
for _name, _setting in (
    ("compute_per_sample", "samples"),
    ("compute_per_step", "steps"),
    ("computing", "computing_s"),
    ("waiting", "waiting_s"),
):
    COLUMNS.add(_name, operator.itemgetter(_setting))
