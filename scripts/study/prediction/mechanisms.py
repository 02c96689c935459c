"""The named mechanisms of the performance model: how each grows with the ranks. Their priors are in config/prediction.

A column is computed from a frame of settings, one row per point, see `study.prediction.settings`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from study.core import validation
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.provenance import PACKAGES
from study.core.registry import Registry
from study.prediction.regression import Terms

FILE = CONFIG / "prediction" / "mechanisms.yaml"
GB = 1e3  # MB
MBIT_PER_GB = 8e3

Column = Callable[[pd.DataFrame], pd.Series]


class Mechanism(NamedTuple):
    """The column of a mechanism, and the quantities in which it makes sense.

    per_sample: whether the cost is one of each of a rank's samples, so that it shrinks with the rank's work.
    """

    column: Column
    quantities: tuple[str, ...]
    per_sample: bool = False


MECHANISMS: Registry[Mechanism] = Registry("mechanism")
PARTS = ("epoch", "load", "other")  # of the runtime
# What the model needs in every fit: the part that is not overhead, and both powers.
NEEDED = {
    "epoch": ("compute_per_sample",),
    "load": ("constant",),
    "other": ("constant",),
    "energy": ("computing", "waiting"),
}
FIRST_EPOCH = ("first_epoch_constant", "first_epoch_doubling", "first_epoch_per_rank")
COMPUTE = ("compute_per_sample", "compute_per_step")


@functools.cache
def declared() -> dict[str, Any]:
    """The content of config/prediction/mechanisms.yaml.

    Raises `StudyError` for a mechanism that does not exist or is not meant for its quantity, for one that is missing,
    and for a range whose ends are exchanged.
    """
    content = validation.load_valid_yaml(FILE, "mechanisms")
    for problem in _problems(content):
        raise StudyError(f"{validation.shorten_path(FILE)}: {problem}")
    return content


def _problems(content: dict[str, Any]) -> Iterator[str]:
    """A line for each wrong key."""
    for name in content["versions"]:
        if name not in PACKAGES:
            yield f"versions.{name}: runs do not record its version{validation.suggest_nearest(name, PACKAGES)}"
    for name, versions in content["versions"].items():
        first, *last = ([int(number) for number in end.split(".")] for end in versions.split(" to "))
        if last and last[0][: len(first)] < first[: len(last[0])]:
            yield f"versions.{name}: {versions}: no version is in it; give the first one first"
    for quantity, mechanisms in content["quantities"].items():
        key = f"quantities.{quantity}"
        meant = [name for name, mechanism in MECHANISMS.items() if quantity in mechanism.quantities]
        known = ", ".join(meant)
        for name, prior in mechanisms.items():
            low, high = prior.get("range") or prior["share"]
            if low > high:
                yield f"{key}.{name}: the range goes from {low:g} to {high:g}; give the lower end first"
            if name not in MECHANISMS:
                yield f"{key}: there is no mechanism {name!r}{validation.suggest_nearest(name, meant)}; known: {known}"
            elif name not in meant:
                yield f"{key}.{name}: this mechanism makes no sense in {quantity}; those that do: {known}"
        for name in NEEDED[quantity]:
            if not mechanisms.get(name, {}).get("always"):
                yield f"{key}.{name}: must be there with always: true; no prediction of {quantity} works without it"


def columns(names: tuple[str, ...], settings: pd.DataFrame) -> np.ndarray:
    """Shape (settings, names)."""
    return np.stack(
        [np.broadcast_to(MECHANISMS[name].column(settings), len(settings)) for name in names], axis=1
    ).astype(float)


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
            samples = float(x["samples"].mean()) if MECHANISMS[name].per_sample else 1.0
            ranges.append([share * mean / samples for share in prior[name]["share"]])
    low, high = np.array(ranges, dtype=float).T
    always = np.array([prior[name].get("always", False) for name in names])
    return Terms(names, low, high, always, declared()["probability"])


def _is_possible(name: str, settings: pd.DataFrame) -> bool:
    """Whether a mechanism costs anything on several nodes with several ranks each."""
    several = settings.assign(ranks=4, nodes=2, ranks_per_node=2)
    return bool((columns((name,), several) > 0).any())


def _mechanism(name: str, *quantities: str, per_sample: bool = False) -> Callable[[Column], Column]:
    """Register the decorated column under a name, with the quantities in which it makes sense.

    per_sample: the column is multiplied by a rank's samples.
    """

    def register(column: Column) -> Column:
        whole = (lambda settings: settings["samples"] * column(settings)) if per_sample else column
        MECHANISMS.add(name, Mechanism(whole, quantities, per_sample))
        return column

    return register


def _doublings(settings: pd.DataFrame) -> pd.Series:
    return np.log2(settings["ranks"])


def _ring(members: pd.Series) -> pd.Series:
    """Share of a message that a ring allreduce sends per member: 2 (n - 1) / n."""
    return 2 * (members - 1) / members


@_mechanism("constant", *PARTS)
def _constant(settings: pd.DataFrame) -> pd.Series:
    return pd.Series(1.0, settings.index)


@_mechanism("per_doubling", *PARTS)
@_mechanism("tree_per_epoch", "epoch", per_sample=True)
def _per_doubling(settings: pd.DataFrame) -> pd.Series:
    return _doublings(settings)


@_mechanism("per_rank", *PARTS)
def _per_rank(settings: pd.DataFrame) -> pd.Series:
    return settings["ranks"] - 1.0


@_mechanism("per_rank_of_node", *PARTS)
def _per_rank_of_node(settings: pd.DataFrame) -> pd.Series:
    return settings["ranks_per_node"] - 1.0


@_mechanism("allreduce_within_node", "epoch")
def _allreduce_within_node(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * _ring(settings["ranks_per_node"]) * settings["gradient_mb"].fillna(0) / GB


@_mechanism("allreduce_between_nodes", "epoch")
def _allreduce_between_nodes(settings: pd.DataFrame) -> pd.Series:
    unlimited = ~(settings["link_mbit_per_s"] > 0)
    return settings["steps"] * _ring(settings["nodes"]) * settings["gradient_mb"].fillna(0) / GB * unlimited


@_mechanism("allreduce_over_links", "epoch")
def _allreduce_over_links(settings: pd.DataFrame) -> pd.Series:
    rate = settings["link_mbit_per_s"]
    gb_per_s = (rate / MBIT_PER_GB).where(rate > 0, np.inf)
    return settings["steps"] * _ring(settings["nodes"]) * settings["gradient_mb"].fillna(0) / GB / gb_per_s


@_mechanism("latency_per_step", "epoch")
def _latency_per_step(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * _doublings(settings)


@_mechanism("coordinator_per_step", "epoch")
def _coordinator_per_step(settings: pd.DataFrame) -> pd.Series:
    return settings["steps"] * (settings["ranks"] - 1.0)


@_mechanism("slowest_rank", "epoch", per_sample=True)
def _slowest_rank(settings: pd.DataFrame) -> pd.Series:
    return np.sqrt(2 * np.log(settings["ranks"]))


def _once_per_run(column: Column) -> Column:
    """What a run has once, as its share of each epoch."""
    return lambda settings: column(settings) / settings["epochs_per_rank"]


for _name, _shape in zip(FIRST_EPOCH, (_constant, _per_doubling, _per_rank), strict=True):
    _mechanism(_name, "epoch")(_once_per_run(_shape))
for _name, _quantity, _setting in (
    ("compute_per_sample", "epoch", "samples"),
    ("compute_per_step", "epoch", "steps"),
    ("computing", "energy", "computing_s"),
    ("waiting", "energy", "waiting_s"),
):
    _mechanism(_name, _quantity)(operator.itemgetter(_setting))
