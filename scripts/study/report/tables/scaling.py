"""Tables of scaling: speedup, efficiency and time to a quality."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from study.compare import estimates, failed_runs
from study.compare.rank_answer import SERIES
from study.core.wording import format_count
from study.experiment.parameters import is_observed
from study.experiment.study import Study, compute_work_growth
from study.records import targets
from study.records.names import runs_of
from study.records.power import has_no_mean
from study.report.tables.declared import Rows, average_points, load_declarations, table_rows
from study.report.tables.summary import points, to_target


@table_rows("scaling")
def scaling(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Time to solution, speedup and scaling efficiency of each series, relative to its smallest number of ranks."""
    declaration = load_declarations()["scaling"]
    table = average_points(declaration, runs)
    table = table.sort_values([*SERIES, "gpus"], ignore_index=True)
    table = table.assign(load_share=table["load_s"] / table["runtime_s"])
    table = pd.concat([_add_efficiency(group, runs) for _, group in table.groupby(SERIES, sort=False)] or [table])
    columns = declaration["columns"]
    if table["pairing"].dropna().eq(estimates.PAIRED).all():
        columns = [name for name in columns if name != "pairing"]
    remarks = [*_explain_missing_flop(runs), *_explain_program_results(runs), *to_target(runs, "runtime and speedup")]
    return Rows(table, remarks, columns=columns)


def _explain_missing_flop(runs: pd.DataFrame) -> list[str]:
    """Remarks on why successful runs have no FLOP utilisation."""
    reasons = failed_runs.keep_proven(runs)["flop_reason"].dropna().unique()
    return [f"no FLOP utilisation: {'; '.join(reasons)}"] if len(reasons) else []


def _explain_program_results(runs: pd.DataFrame) -> list[str]:
    """Remarks on why results of commands are empty or doubtful."""
    reasons = runs["program_reason"].dropna().unique() if "program_reason" in runs else ()
    return [f"programs: {'; '.join(reasons)}"] if len(reasons) else []


def _add_efficiency(series: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add speedup and efficiency of the whole run; empty where no block has both points' times.

    The speedup is the geometric mean of the ratios within blocks, so that a repeat that only one of the two points has
    does not count; see `study.compare.estimates`.
    """
    base = series.iloc[0]
    ranks = series["gpus"] / base["gpus"]
    work = compute_work_growth(base["scaling"], base["sharding"], ranks)
    paired = [estimates.compare_rows(runs, base["records"], records, "runtime_s") for records in series["records"]]
    ratio = pd.Series([each.value for each in paired], index=series.index, dtype=float)
    return series.assign(
        speedup=ratio * work,
        speedup_low=np.array([each.low for each in paired]) * work,
        speedup_high=np.array([each.high for each in paired]) * work,
        efficiency=ratio * work / ranks,
        pairing=[each.pairing if place else None for place, each in enumerate(paired)],
        blocks_unlike=[each.unlike for each in paired],
        blocks_alike=[estimates.describe_fewer_blocks({"speedup": each}) for each in paired],
    )


# MLPerf Training rules, "Benchmark Results": five runs of a vision benchmark, ten of a language benchmark.
LEAST_REPEATS = 5
OLYMPIC = {name: f"{stem}_olympic_{unit}" for name in targets.MEASURES[1:] for stem, _, unit in [name.rpartition("_")]}
COUNTS = ["repeats_reached", "repeats_not_reached", "repeats_unknown"]


def has_target(study: Study) -> bool:
    """Whether a study has runs that give timings, of a dataset with a target quality."""
    return any(is_observed(run, None) and run.dataset.target for run in study.runs)


@table_rows("time_to_quality", is_there=has_target)
def time_to_quality(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: how many runs reached the target; epochs, seconds and joules until then, by two means."""
    chosen = runs[runs["quality_target"].notna()]
    table = points(chosen, list(targets.MEASURES))
    of_point = [runs_of(chosen, records) for records in table["records"]]
    table = table.join(
        pd.DataFrame([_summarize_convergence(group) for group in of_point], index=table.index, columns=ADDED)
    )
    order = ["benchmark", "dataset", "scaling", "batch_size", "batch_scaling", "loader", "gpus"]
    table = table.sort_values(order, ignore_index=True)
    return Rows(table, _name_runs_without_target(runs), _count_missed(table))


ADDED = ["quality_target", *COUNTS, *OLYMPIC.values(), "remark"]


def _summarize_convergence(group: pd.DataFrame) -> dict[str, Any]:
    """Counts and olympic means of a point's repeats.

    A run that resumed from a checkpoint is counted, but has no times.
    """
    ok = failed_runs.keep_proven(group)
    reached, missed = (int(ok["target_reached"].eq(value).sum()) for value in (True, False))
    # One that resumed has no times; that it missed the target needs none.
    has_times = ok["target_reached"].notna() & ok["resumed_after_epoch"].isna()
    decided = ok[has_times | ok["target_reached"].eq(False)]
    few = len(decided) < LEAST_REPEATS
    summary: dict[str, Any] = dict(zip(COUNTS, (reached, missed, len(ok) - reached - missed), strict=True))
    summary["quality_target"] = "; ".join(group["quality_target"].unique())
    for measure, name in OLYMPIC.items():
        values = decided[measure].astype(float).mask(decided["target_reached"].eq(False), np.inf)
        summary[name] = np.nan if few or has_no_mean(ok, measure) else olympic_mean(values)
    remarks = [f"too few repeats ({len(decided)} of {LEAST_REPEATS})"] if few else []
    if missed:
        remarks.append(f"{missed} did not reach the target")
    summary["remark"] = "; ".join(remarks) or None
    return summary


def olympic_mean(values: Iterable[float]) -> float:
    """The mean without the lowest and the highest value; infinity stands for a run that did not reach its target.

    NaN if a value is missing, if fewer than three are there, or if more than one is infinite.
    """
    ascending = np.sort(np.asarray(list(values), dtype=float))
    inner = ascending[1:-1]
    if len(inner) == 0 or np.isnan(ascending).any() or not np.isfinite(inner).all():
        return np.nan
    return float(inner.mean())


def _count_missed(table: pd.DataFrame) -> list[str]:
    """How many runs missed the target, as a remark."""
    missed = int(table["repeats_not_reached"].sum())
    return (
        [f"{format_count(missed, 'run')} missed the target: failures to converge, in no plain mean"] if missed else []
    )


def _name_runs_without_target(runs: pd.DataFrame) -> list[str]:
    """The benchmarks without a target, as a remark."""
    without = runs.loc[runs["quality_target"].isna(), "benchmark"].unique()
    return [f"no target quality is known for {', '.join(without)}"] if len(without) else []
