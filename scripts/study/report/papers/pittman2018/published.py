"""The published numbers of the Pittman paper, and what follows from them without a run."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from study.core.registry import Registry
from study.core.statistics import student
from study.report.papers import slim_networks
from study.report.papers.claims import Range
from study.report.papers.values import selected, values
from study.report.tables.summary import published

RUNTIME, NETWORKS, ONE_CORE = (f"pittman2018_table{name}.csv" for name in ("1_runtime", "2_networks", "3_one_core"))
CABINET, POWER, TEXT = "pittman2018_table4_cabinet.csv", "pittman2018_table5_power.csv", "pittman2018_text.csv"
DIGIT_S = 0.1  # the last printed digit of the times of Table I
LARGEST_16_BIT = 2**15 - 1

DERIVED: Registry[Callable[[dict[str, Any], str], Range]] = Registry("number derived from pittman2018")


def networks() -> list[str]:
    """The benchmarks that are the paper's networks (Table II)."""
    return list(published(NETWORKS)["benchmark"])


def number(claim: pd.Series) -> Range:
    """The published side of a row of ``pittman2018_claims.csv``; all NaN if the paper has no number.

    benchmark is None in a number of no network.
    """
    if claim["derived_by"] is None:
        return (math.nan,) * 3
    return DERIVED[claim["derived_by"]](values(claim["of"]), claim["benchmark"])


def power(input_sharing: str, benchmark: str, column: str = "cabinet_w") -> float:
    """Mean power of the cabinet in W: Table V."""
    return _cell(POWER, column, input_sharing=input_sharing, benchmark=benchmark)


def slowdown(input_sharing: str, benchmark: str) -> float:
    """Training time on one core over that on 16 cores: Table III."""
    return _cell(ONE_CORE, "slowdown", input_sharing=input_sharing, benchmark=benchmark)


def idle_w() -> float:
    """Power of the idle cabinet: Table IV."""
    return _cell(CABINET, "idle_w")


def saved_pct(benchmark: str) -> float:
    """By how much less power the cabinet draws with all_shared than with duplicated pipelines: Table V."""
    return 100 * (1 - power("all_shared", benchmark) / power("duplicated", benchmark))


def saved_above_idle_pct(benchmark: str) -> float:
    """The same of the power above that of the idle cabinet, which the paper calls savings (section VI-C)."""
    return 100 * (1 - (power("all_shared", benchmark) - idle_w()) / (power("duplicated", benchmark) - idle_w()))


def steps_of_table1() -> float:
    """Training steps whose times Table I has."""
    return _text(measure="steps_of_table1")


def solo_rate(benchmark: str) -> float:
    """Images/s of one member by itself: Table I's mean time of 2,000 steps with Table II's batch size."""
    images = steps_of_table1() * _cell(NETWORKS, "batch_size", benchmark=benchmark)
    return images / _cell(RUNTIME, "mean_s", case="solo", benchmark=benchmark)


def compute_rate(benchmark: str) -> float:
    """Images/s that a member computes (r_c): `solo_rate` over its share of the peak (section I)."""
    return 100 * solo_rate(benchmark) / _text(measure="share_of_peak_pct", benchmark=benchmark)


def welch() -> tuple[float, float, float]:
    """1,000 nodes less solo (Table I): difference of the means in s, its standard error, degrees of freedom.

    Reference: B. L. Welch, Biometrika 34 (1947), 28-35.
    """
    rows = published(RUNTIME).set_index("case")
    difference = float(rows.loc["parallel", "mean_s"] - rows.loc["solo", "mean_s"])
    parts = {case: (row["std_s"] ** 2 / row["times"], row["times"] - 1) for case, row in rows.iterrows()}
    variance = sum(part for part, _ in parts.values())
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts.values())
    return difference, math.sqrt(variance), freedom


def _cell(file: str, column: str, **where: Any) -> float:
    rows = selected(published(file), where)
    if len(rows) != 1:
        raise ValueError(f"{file}: {where}: {len(rows)} rows instead of one")
    return float(rows[column].iloc[0])


def _text(**where: Any) -> float:
    return _cell(TEXT, "value", **where)


def _single(value: float) -> Range:
    return value, math.nan, math.nan


def _of_benchmark(name: str, derive: Callable[[str], float]) -> None:
    """Register a number that depends on the network only."""
    DERIVED.add(name, lambda of, benchmark: _single(derive(benchmark)))


def _of_the_cabinet(name: str, derive: Callable[[], float]) -> None:
    """Register a number of no network."""
    DERIVED.add(name, lambda of, benchmark: _single(derive()))


@DERIVED.register("text")
def _printed(of: dict[str, Any], benchmark: str) -> Range:
    where = of | ({"benchmark": benchmark} if benchmark else {})
    value, low, high = (_cell(TEXT, column, **where) for column in ("value", "low", "high"))
    return value, low, high


@DERIVED.register("difference_of_means")
def _difference_of_means(of: dict[str, Any], benchmark: str) -> Range:
    """With its 95 % interval."""
    difference, error, freedom = welch()
    half = student(freedom, 0.025) * error
    return difference, difference - half, difference + half


def _welch_t() -> float:
    difference, error, _ = welch()
    return abs(difference) / error


def _welch_t_of_rounded() -> float:
    """The largest t that the means before rounding can have had."""
    difference, error, _ = welch()
    return (abs(difference) + DIGIT_S) / error


def _one_core_speedup(benchmark: str) -> float:
    """Duplicated / all_shared on one core, from the slowdowns and from the ratio on 16 cores.

    On 16 cores all_shared trains AlexNet at its peak, and duplicated at 66 % of it (section I); the other networks
    train alike with both (section V-B).
    """
    shares = selected(published(TEXT), {"measure": "share_of_peak_pct", "benchmark": benchmark})["value"] / 100
    return (
        slowdown("duplicated", benchmark) / slowdown("all_shared", benchmark) / (shares.iloc[0] if len(shares) else 1)
    )


def _saved_w_per_node(benchmark: str) -> float:
    saved = power("duplicated", benchmark) - power("all_shared", benchmark)
    return saved / _text(measure="cabinet_nodes_used")


def _saturating_ranks(benchmark: str) -> float:
    """The fewest ranks whose preprocessing together reaches r_c: n r_p >= r_c (section IV-A)."""
    return math.ceil(compute_rate(benchmark) / solo_rate(benchmark))


_of_the_cabinet("welch_t", _welch_t)
_of_the_cabinet("welch_t_of_rounded", _welch_t_of_rounded)
_of_benchmark("trained_parameters", lambda benchmark: slim_networks.parameters(benchmark).all)
_of_benchmark("solo_rate", solo_rate)
_of_benchmark("compute_rate", compute_rate)
_of_benchmark("one_core_preprocessing_rate", lambda name: solo_rate(name) / slowdown("duplicated", name))
_of_benchmark("saturating_ranks", _saturating_ranks)
_of_benchmark("one_core_speedup", _one_core_speedup)
_of_benchmark("saved_pct", saved_pct)
_of_benchmark("saved_above_idle_pct", saved_above_idle_pct)
_of_benchmark("saved_w_per_node", _saved_w_per_node)
_of_the_cabinet("idle_share_pct", lambda: 100 * idle_w() / _cell(CABINET, "highest_w"))
_of_the_cabinet("idle_deviation_w", lambda: math.sqrt(_cell(CABINET, "idle_variance_w2")))
_of_the_cabinet("highest_over_16_bits", lambda: _cell(CABINET, "highest_w") / LARGEST_16_BIT)
_of_the_cabinet("job_nodes", lambda: _text(measure="cabinet_nodes") - _text(measure="cabinet_service_nodes"))
_of_the_cabinet("unused_nodes", lambda: _text(measure="cabinet_nodes") - _text(measure="cabinet_nodes_used"))
