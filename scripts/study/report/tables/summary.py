"""Shared by the tables of runs: averages over repeats, counts of failures, remarks."""

from collections.abc import Collection, Iterable
from typing import Any

import pandas as pd

from study.compare import failed_runs, likeness
from study.core.statistics import summarize
from study.core.wording import format_count
from study.experiment import schemas
from study.experiment.parameters import PARAMETERS
from study.records import targets
from study.records.names import join_records
from study.records.power import NO_MEAN, OF_POWER, has_no_mean, note_modelled_power
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import NOT_STATED

# Columns that identify a row of a table of runs: the machine, its memory mode and every grid key except the repeat.
IDENTITY = ("machine", "memory_mode", *schemas.list_separating_keys())
# Columns in which repeats of one point may differ are not included.
POINT = [*IDENTITY, "epochs_per_rank", "batch_size_per_rank"]
WORKLOAD = ["train_samples", "features"]
SINGLE_STEPS = ("step_time_median_s", "step_time_p95_s", "step_time_jitter")
STEP_TIMES = ("time_per_step_s", *SINGLE_STEPS)  # columns of the epochs after the first, or of the only one
TOLD = ["repeats_ok", "repeats_resumed", "repeats_failed", "failures", "may_fail", "power_source", "power_reason",
        "oversubscribed", "code_is_current", "repeats_unlike",
        "records"]  # fmt: skip


def points(runs: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """One row per point of the grid: mean and 95 % confidence interval of ``measures`` over its successful repeats.

    ``repeats_ok`` and ``repeats_failed`` count the repeats. ``repeats_resumed`` counts successful ones whose times are
    left out because they were resumed from a checkpoint. ``failures`` lists the kinds of failures, ``may_fail`` says
    whether they were expected, and ``repeats_unlike`` in what the repeats differ that are no repeats of one experiment.
    With a measure of power or energy, ``power_source`` says where it is from and ``power_reason`` why it is missing. A
    point whose repeats all failed has a row without numbers.
    """
    groups = runs.groupby(POINT, sort=False, dropna=False)
    rows = [_point(dict(zip(POINT, key, strict=True)), group, measures) for key, group in groups]
    if likeness.has_differences(runs):  # mostly not, and looking at each point takes long
        for row, (_, group) in zip(rows, groups, strict=True):
            row["repeats_unlike"] = likeness.describe_difference(failed_runs.keep_proven(group))
    further = TOLD if set(measures) & set(OF_POWER) else [name for name in TOLD if not name.startswith("power_")]
    table = pd.DataFrame(rows, columns=[*POINT, *WORKLOAD, *_list_measured_columns(measures), *further])
    # Copied: `astype` leaves an array per column, and each column that a table adds then warns of it.
    return table.astype(dict.fromkeys(WORKLOAD, "Int64")).copy()


def _list_measured_columns(measures: list[str]) -> list[str]:
    return [column for measure in measures for column in (measure, ci95_name(measure))]


def _point(point: dict[str, Any], group: pd.DataFrame, measures: list[str]) -> dict[str, Any]:
    ok = failed_runs.keep_proven(group)
    failed = group[group["status"] != "ok"]
    for name in WORKLOAD:
        point[name] = ok[name].iloc[0] if len(ok) else None
    sources = list(ok["power_source"].dropna().unique())
    for measure in measures:
        sample = summarize(ok[measure].iloc[:0] if has_no_mean(ok, measure) else ok[measure])
        point[measure], point[ci95_name(measure)] = sample.mean, sample.ci95
    point["repeats_ok"], point["repeats_failed"] = len(ok), len(failed)
    point["repeats_resumed"] = int(ok["resumed_after_epoch"].notna().sum())
    point["failures"] = count_kinds(failed["failure_kind"])
    point["may_fail"] = group["may_fail"].iloc[0]
    point["power_source"] = "; ".join(sources) or None
    point["power_reason"] = NO_MEAN if len(sources) > 1 else _only_reason(ok)
    point["oversubscribed"] = bool(group["oversubscribed"].any())
    point["code_is_current"] = bool(group["code_is_current"].all())
    point["records"] = join_records(group["record"])
    return point


def count_kinds(kinds: pd.Series) -> str | None:
    """Each kind with its number, the most frequent first: ``2 x oom; 1 x timeout``; None without any."""
    return "; ".join(f"{number} x {kind}" for kind, number in kinds.value_counts().items()) or None


def _only_reason(ok: pd.DataFrame) -> str | None:
    if len(ok) == 0:
        return "no repeat succeeded"
    reasons = ok["power_reason"].dropna().unique()
    return "; ".join(reasons) or None


def like(table: pd.DataFrame, row: pd.Series, free: Collection[str]) -> pd.DataFrame:
    """The rows with the values that ``row`` has in the columns that identify one, other than ``free``."""
    same = [name for name in IDENTITY if name in table and name not in free]
    return table[(table[same] == row[same]).all(axis=1)]


def optional_columns(shown: Iterable[str]) -> tuple[str, ...]:
    """Of ``shown``, the columns that are hidden if they are empty."""
    prefixes = ("published_", "ratio_")
    with_default = [name for name, parameter in PARAMETERS.items() if parameter.has_default]
    optional = (*with_default, "repeats_resumed", "repeats_failed", "failures", "may_fail", "oversubscribed", "pairing",
                NOT_STATED)  # fmt: skip
    return tuple(c for c in shown if c.startswith(prefixes) or c in optional or "one_hz" in c)


def steady(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, without the `STEP_TIMES` of those with one epoch: TensorFlow builds its graph in it."""
    if runs.empty:
        return runs
    several = targets.count_trained_epochs(runs) > 1
    return runs.assign(**{name: runs[name].where(several) for name in STEP_TIMES if name in runs})


def to_target(runs: pd.DataFrame, what: str) -> list[str]:
    """That programs stopped before their last epoch, as a remark. what: the numbers that are then not of equal work."""
    if not (number := targets.number_stopped(runs)):
        return []
    return [
        f"{format_count(number, 'run')} stopped at the target before the last epoch (program_epochs): {what} are of "
        "the way to the target, not of equal work"
    ]


def notes(table: pd.DataFrame, share_runs: bool = False) -> list[str]:
    """Remarks below a table: failures, outdated code, and values without a comparison, with the reason.

    share_runs: whether several rows are made from the same runs, so that the sum of their failed repeats would count
    some twice.
    """
    remarks = []
    if "ratio_reason" in table and not table["ratio_reason"].isna().any() and len(table):
        remarks.append(f"no ratio to the published values: {_join_distinct(table['ratio_reason'])}")
    if "power_reason" in table and table["power_reason"].notna().any():
        remarks.append(f"missing power or energy: {_join_distinct(table['power_reason'].dropna())}")
    if "power_source" in table:
        remarks += note_modelled_power(table["power_source"])
    if "repeats_failed" in table and (failed := table["repeats_failed"].sum()):
        of_each = "failed repeats are not in the means"
        remarks.append(f"{of_each}; see repeats_failed" if share_runs else f"{failed} {of_each}")
    if "blocks_unlike" in table and (unlike := list(table["blocks_unlike"].dropna())):
        whys = (each.partition(": ")[2] for text in unlike for each in text.split("; "))
        remarks.append(f"blocks that are not compared: {_join_distinct(whys)}; see blocks_unlike")
    if "blocks_alike" in table and len(alike := table["blocks_alike"].dropna()):
        remarks.append(f"intervals that count their blocks as fewer: {_join_distinct(alike)}; see blocks_alike")
    if "oversubscribed" in table and table["oversubscribed"].any():
        remarks.append("rows marked oversubscribed had fewer cores than ranks x cores a rank")
    if "code_is_current" in table and not table["code_is_current"].all():
        remarks.append("some of this was measured by another version of the code; see code_is_current")
    if "repeats_unlike" in table and table["repeats_unlike"].notna().any():
        differences = _join_distinct(table["repeats_unlike"].dropna())
        remarks.append(f"some rows are means over repeats that are not alike: {differences}; see repeats_unlike")
    return remarks


def _join_distinct(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))
