"""Our own table: time and energy until a target quality, as in the MLPerf Training rules."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

import study.report.tables.kinds as kinds
from study.core.wording import counted
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.records.names import runs_of
from study.records.power import has_no_mean
from study.records.targets import MEASURES
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

# MLPerf Training rules, "Benchmark Results": five runs of a vision benchmark, ten of a language benchmark.
LEAST_REPEATS = 5
OLYMPIC = {name: f"{stem}_olympic_{unit}" for name in MEASURES[1:] for stem, _, unit in [name.rpartition("_")]}
COUNTS = ["repeats_reached", "repeats_not_reached", "repeats_unknown"]


def has_target(study: Study) -> bool:
    """Whether a study has runs that give timings, of a dataset with a target quality."""
    return any(is_observed(run, None) and run.dataset.target for run in study.runs)


@kinds.table(
    "time_to_quality",
    title="Time and energy to the target quality",
    look_for="Whether more GPUs reach the target sooner, not only finish their epochs sooner, and how many runs do not "
    "reach it at all.",
    needs="runs of a benchmark with target_quality",
    uses=kinds.runs(),
    is_there=has_target,
    reads_targets=True,
)
def time_to_quality(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: how many runs reached the target; epochs, seconds and joules until then, by two means."""
    chosen = runs[runs["quality_target"].notna()]
    table = points(chosen, list(MEASURES))
    of_point = [runs_of(chosen, records) for records in table["records"]]
    table = table.join(pd.DataFrame([_convergence(group) for group in of_point], index=table.index, columns=ADDED))
    order = ["benchmark", "dataset", "scaling", "batch_size", "batch_scaling", "loader", "gpus"]
    table = table.sort_values(order, ignore_index=True)
    shown = ["benchmark", "scaling", "batch_scaling", "gpus", "loader", "quality_target", *COUNTS, "repeats_failed",
             "repeats_resumed", "epochs_to_target", "launch_to_target_s", "launch_to_target_olympic_s",
             "training_to_target_s", "load_to_target_j", "load_to_target_olympic_j", "remark",
             "failures", "oversubscribed"]  # fmt: skip
    optional = (*optional_columns(shown), "repeats_unknown", "load_to_target_j", "load_to_target_olympic_j", "remark")
    caption = (
        "Cost until the end of the first validation that reaches the target: epochs; seconds from the launcher's "
        "start and from the begin of training; energy of the job from the begin of loading. Means ± 95 % interval "
        "are over the runs that reached it. olympic: the mean without the lowest and the highest value, as in "
        "MLPerf. A run that did not reach the target counts as the highest. With more than one such run, or fewer "
        f"than {LEAST_REPEATS} runs, there is no olympic mean."
    )
    return Table("time_to_quality", caption, table, shown, optional, _remarks(table, runs), IDENTITY)


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


def _remarks(table: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    found = notes(table, "values")
    if missed := int(table["repeats_not_reached"].sum()):
        found.insert(0, f"{counted(missed, 'run')} missed the target: failures to converge, in no plain mean")
    without = runs.loc[runs["quality_target"].isna(), "benchmark"].unique()
    if len(without):
        found.append(f"no target quality is known for {', '.join(without)}")
    return found
