"""Our own table: time and energy until a target quality, as in the MLPerf Training rules."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from study.core.wording import counted
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.records.names import runs_of
from study.records.power import has_no_mean
from study.records.targets import MEASURES
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import points

# MLPerf Training rules, "Benchmark Results": five runs of a vision benchmark, ten of a language benchmark.
LEAST_REPEATS = 5
OLYMPIC = {name: f"{stem}_olympic_{unit}" for name in MEASURES[1:] for stem, _, unit in [name.rpartition("_")]}
COUNTS = ["repeats_reached", "repeats_not_reached", "repeats_unknown"]


def has_target(study: Study) -> bool:
    """Whether a study has runs that give timings, of a dataset with a target quality."""
    return any(is_observed(run, None) and run.dataset.target for run in study.runs)


@table_rows("time_to_quality", is_there=has_target)
def time_to_quality(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: how many runs reached the target; epochs, seconds and joules until then, by two means."""
    chosen = runs[runs["quality_target"].notna()]
    table = points(chosen, list(MEASURES))
    of_point = [runs_of(chosen, records) for records in table["records"]]
    table = table.join(pd.DataFrame([_convergence(group) for group in of_point], index=table.index, columns=ADDED))
    order = ["benchmark", "dataset", "scaling", "batch_size", "batch_scaling", "loader", "gpus"]
    table = table.sort_values(order, ignore_index=True)
    return Rows(table, _name_runs_without_target(runs), _count_missed(table))


ADDED = ["quality_target", *COUNTS, *OLYMPIC.values(), "remark"]


def _convergence(group: pd.DataFrame) -> dict[str, Any]:
    """Counts and olympic means of a point's repeats.

    A run that resumed from a checkpoint is counted, but has no times.
    """
    ok = group[group["status"] == "ok"]
    reached, missed = (int(ok["target_reached"].eq(value).sum()) for value in (True, False))
    # One that resumed has no times; that it missed the target needs none.
    has_times = ok["target_reached"].notna() & ok["resumed_after_epoch"].isna()
    told = ok[has_times | ok["target_reached"].eq(False)]
    few = len(told) < LEAST_REPEATS
    found: dict[str, Any] = dict(zip(COUNTS, (reached, missed, len(ok) - reached - missed), strict=True))
    found["quality_target"] = "; ".join(group["quality_target"].unique())
    for measure, name in OLYMPIC.items():
        values = told[measure].astype(float).mask(told["target_reached"].eq(False), np.inf)
        found[name] = np.nan if few or has_no_mean(ok, measure) else olympic_mean(values)
    remarks = [f"too few repeats ({len(told)} of {LEAST_REPEATS})"] if few else []
    if missed:
        remarks.append(f"{missed} did not reach the target")
    found["remark"] = "; ".join(remarks) or None
    return found


def olympic_mean(values: Iterable[float]) -> float:
    """The mean without the lowest and the highest value; infinity stands for a run that did not reach its target.

    NaN if a value is missing, if fewer than three are there, or if more than one is infinite.
    """
    given = np.sort(np.asarray(list(values), dtype=float))
    kept = given[1:-1]
    if len(kept) == 0 or np.isnan(given).any() or not np.isfinite(kept).all():
        return np.nan
    return float(kept.mean())


def _count_missed(table: pd.DataFrame) -> list[str]:
    """How many runs missed the target, as a remark."""
    missed = int(table["repeats_not_reached"].sum())
    return [f"{counted(missed, 'run')} missed the target: failures to converge, in no plain mean"] if missed else []


def _name_runs_without_target(runs: pd.DataFrame) -> list[str]:
    """The benchmarks without a target, as a remark."""
    without = runs.loc[runs["quality_target"].isna(), "benchmark"].unique()
    return [f"no target quality is known for {', '.join(without)}"] if len(without) else []
