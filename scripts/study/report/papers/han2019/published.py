"""The published numbers of the Han paper, and what follows from them without a run."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from study.core.registry import Registry
from study.report.papers import slim_networks
from study.report.papers.claims import Range
from study.report.papers.values import selected, values
from study.report.tables.summary import published

MODELS, NVLINK, TEXT = "han2019_table1_models.csv", "han2019_table3_nvlink_gb.csv", "han2019_text.csv"
BATCH_SIZE = 128  # of a node (section IV-C2)
BYTES = 4  # of a float32 weight or gradient

DERIVED: Registry[Callable[[dict[str, Any], str | None], Range]] = Registry("number derived from han2019")


def networks() -> list[str]:
    """The benchmarks that are the paper's networks (Table I)."""
    return list(published(MODELS)["benchmark"])


def number(claim: pd.Series) -> Range:
    """The published side of a row of ``han2019_claims.csv``; all NaN if the paper has no number."""
    if claim["derived_by"] is None:
        return (math.nan,) * 3
    return DERIVED[claim["derived_by"]](values(claim["of"]), claim["benchmark"])


def printed_parameters(benchmark: str) -> int:
    """Parameters of a network in Table I: rounded, and of LeNet and AlexNet those of other networks than trained."""
    return int(published(MODELS).set_index("benchmark").loc[benchmark, "parameters"])


def nvlink_mb_per_step(benchmark: str, column: str = "gpu_to_cpu_gb") -> float:
    """MB over NVLink in a step on four GPUs: Table III, in steps of 128 images (section IV-C2) of 1.2 million (III)."""
    volume = published(NVLINK).set_index("benchmark").loc[benchmark, column]
    return 1000 * float(volume) / (_one(measure="images_per_epoch") / BATCH_SIZE)


def nvlink_per_gradient(benchmark: str, column: str = "gpu_to_cpu_gb", parameters: int | None = None) -> float:
    """`nvlink_mb_per_step` in units of one set of gradients: of TF-Slim's network, or of one with these parameters."""
    number = slim_networks.parameters(benchmark).trained if parameters is None else parameters
    return nvlink_mb_per_step(benchmark, column) / (BYTES * number / 1e6)


def _row(where: dict[str, Any], benchmark: str | None) -> pd.Series:
    """The row of the text's numbers with these values; ``benchmark: none`` is a number of no single network."""
    table = published(TEXT)
    wanted = dict(where)
    network = wanted.pop("benchmark", benchmark)
    rows = selected(table, wanted)
    if network == "none":
        rows = rows[rows["benchmark"].isna()]
    elif network:
        rows = rows[rows["benchmark"] == network]
    if len(rows) != 1:
        raise ValueError(f"{TEXT}: {where}, {benchmark}: {len(rows)} rows instead of one")
    return rows.iloc[0]


def _one(benchmark: str | None = None, **where: Any) -> float:
    return float(_row(where, benchmark)["value"])


def _single(value: float) -> Range:
    return value, math.nan, math.nan


@DERIVED.register("text")
def _text(of: dict[str, Any], benchmark: str | None) -> Range:
    row = _row(of, benchmark)
    return float(row["value"]), float(row["low"]), float(row["high"])


@DERIVED.register("range")
def _range(of: dict[str, Any], benchmark: str | None) -> Range:
    _, low, high = _text(of, benchmark)
    return _single(high - low)


@DERIVED.register("read_ratio")
def _read_ratio(of: dict[str, Any], benchmark: str | None) -> Range:
    nvme, lustre = (_one(measure="read_gb_per_s", storage=storage) for storage in ("nvme", "lustre"))
    return _single(nvme / lustre)


@DERIVED.register("node_read_gb_per_s")
def _node_read(of: dict[str, Any], benchmark: str | None) -> Range:
    row = _row({"measure": "read_gb_per_s_of_a_node"}, None)
    return _single(float(row["gpus"]) * _one(measure="read_mb_per_s_of_a_gpu") / 1000)


@DERIVED.register("ratio_of_improvement")
def _ratio(of: dict[str, Any], benchmark: str | None) -> Range:
    return _single(1 + _one(benchmark, **of) / 100)


@DERIVED.register("efficiency_of_improvement")
def _efficiency(of: dict[str, Any], benchmark: str | None) -> Range:
    return _single((1 + _one(benchmark, **of) / 100) / of["gpus"])


@DERIVED.register("efficiency_of_ratio")
def _efficiency_of_ratio(of: dict[str, Any], benchmark: str | None) -> Range:
    row = _row(of, benchmark)
    return _single(float(row["value"]) / float(row["gpus"]))


@DERIVED.register("share_of_nvlink_pct")
def _share_of_nvlink(of: dict[str, Any], benchmark: str | None) -> Range:
    return _single(100 * _one(benchmark, **of) / _one(measure="nvlink_peak_gb_per_s"))


@DERIVED.register("lost_bandwidth_pct")
def _lost_bandwidth(of: dict[str, Any], benchmark: str | None) -> Range:
    far, near = (_one(measure=f"nvlink_gpu0_to_gpu{gpu}_gb_per_s") for gpu in (2, 1))
    return _single(100 * (1 - far / near))


def _network(benchmark: str | None) -> str:
    if benchmark is None:
        raise ValueError("parameters need a network")
    return benchmark


@DERIVED.register("trained_parameters")
def _trained_parameters(of: dict[str, Any], benchmark: str | None) -> Range:
    return _single(slim_networks.parameters(_network(benchmark)).all)


@DERIVED.register("nvlink_per_gradient")
def _nvlink_per_gradient(of: dict[str, Any], benchmark: str | None) -> Range:
    """of: ``column`` of Table III; ``trained``: whether of the networks that were trained, or of those of Table I."""
    network = _network(benchmark)
    parameters = None if of["trained"] == "yes" else printed_parameters(network)
    return _single(nvlink_per_gradient(network, of["column"], parameters))


@DERIVED.register("checkpoint_ratio")
def _checkpoint_ratio(of: dict[str, Any], benchmark: str | None) -> Range:
    deep, small = (_one(network, measure="checkpoint_s") for network in ("resnet101", "lenet"))
    return _single(deep / small)


@DERIVED.register("parameter_ratio")
def _parameter_ratio(of: dict[str, Any], benchmark: str | None) -> Range:
    """of: ``trained``, as above."""
    deep, small = (
        slim_networks.parameters(network).all if of["trained"] == "yes" else printed_parameters(network)
        for network in ("resnet101", "lenet")
    )
    return _single(deep / small)


@DERIVED.register("third_gain_pct")
def _third_gain(of: dict[str, Any], benchmark: str | None) -> Range:
    measure = "throughput_over_batch_128_pct"
    _, low, high = _text({"measure": measure, "section": "IV-D2"}, None)
    return _single(3 * _one(measure=measure, section="V") - low - high)
