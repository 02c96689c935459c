"""How many ranks a job deserves, by what was measured: the first block of the report."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from dataclasses import dataclass

import pandas as pd

from study.compare import failed_runs
from study.compare.estimates import Estimate, compare_rows
from study.core.wording import format_count, format_significant
from study.experiment.study import compute_work_growth
from study.records import disturbed, targets
from study.records.names import runs_of, split_records
from study.report.tables import TABLES
from study.report.tables.kinds import select_runs
from study.report.tables.scaling import SERIES

LEAST_GAIN = 1.5  # speedup of a doubling that is worth its ranks: half of the added ones is used
RULE = (
    f"The largest measured number of ranks up to which each doubling gets the work done at least {LEAST_GAIN:g} times "
    "as fast, so that at least half of the added ranks is used. Times are of the whole run, with start-up and loading. "
    "A number of ranks on which more runs failed than on fewer is left out."
)


@dataclass(frozen=True)
class Answer:
    """The answer for one workload. series: its name; records: of the runs behind the sentence."""

    series: str
    ranks: int
    sentence: str
    records: list[str]


@dataclass(frozen=True)
class _Step:
    """From one measured number of ranks to the next: the speedup of the whole step.

    survivors: where the added ranks are not worth it, that the fewer ones failed more often; else None.
    """

    ranks: int
    next_ranks: int
    speedup: Estimate
    survivors: str | None = None

    @property
    def least(self) -> float:
        """The speedup that is worth the added ranks."""
        return float(LEAST_GAIN ** math.log2(self.next_ranks / self.ranks))

    @property
    def is_worth(self) -> bool:
        """Whether the added ranks are worth it, by the estimate."""
        return bool(self.speedup.value >= self.least)


def answer_workloads(runs: pd.DataFrame) -> list[Answer]:
    """An answer for each workload that was measured on two numbers of ranks or more.

    runs: the tidy table of a study's runs.
    """
    kind = TABLES["scaling"]
    runs = select_runs(runs, kind.uses)
    if runs.empty:
        return []
    scaling = kind.make(runs, pd.DataFrame()).frame
    groups = [rows for _, rows in scaling.groupby(SERIES, sort=False, dropna=False) if rows["gpus"].nunique() > 1]
    series = zip(_name_series(groups), groups, strict=True)
    return [each for name, rows in series if (each := _answer_series(name, rows.sort_values("gpus"), runs))]


def _name_series(groups: list[pd.DataFrame]) -> list[str]:
    """The benchmark of each series, with the values of the keys in which series of it differ."""
    firsts = pd.DataFrame([rows.iloc[0] for rows in groups])
    names = []
    for _, row in firsts.iterrows():
        alike = firsts[firsts["benchmark"] == row["benchmark"]]
        keys = [key for key in SERIES if key != "benchmark" and alike[key].nunique(dropna=False) > 1]
        names.append(", ".join([row["benchmark"], *(f"{key} {row[key]}" for key in keys)]))
    return names


def _answer_series(name: str, rows: pd.DataFrame, runs: pd.DataFrame) -> Answer | None:
    steps, skipped = _find_steps(rows, runs)
    if not steps:
        return None
    stop = next((step for step in steps if not step.is_worth), None)
    ranks, judged = stop.ranks if stop else steps[-1].next_ranks, stop or steps[-1]
    records = [record for text in rows["records"] for record in split_records(text)]
    used = runs[runs["record"].isin(records)]
    sentences = [_write_sentence(ranks, judged, int(rows["gpus"].max()))]
    if judged.survivors:
        sentences.append(f"But {judged.survivors}.")
    if not_compared := sorted(count for count, why in skipped.items() if why is None):
        sentences.append(f"Nothing is said about {', '.join(map(str, not_compared))}: no successful runs to compare.")
    sentences += [f"Not {count}, whatever its times: {why}." for count, why in sorted(skipped.items()) if why]
    sentences += _describe_stops(used)
    sentences += disturbed.sentence(int(used["disturbed"].eq(True).sum()), len(used), "run")
    return Answer(name, ranks, " ".join(sentences), records)


def _describe_stops(used: pd.DataFrame) -> list[str]:
    """What the work of programs is that stopped before their last epoch, as a sentence."""
    if not (number := targets.number_stopped(used)):
        return []
    return [f"{number} of {format_count(len(used), 'run')} stopped at the target: the work is the way to it."]


def _find_steps(rows: pd.DataFrame, runs: pd.DataFrame) -> tuple[list[_Step], dict[int, str | None]]:
    """The steps from each number of ranks to the next one that can be compared with it, and the numbers that cannot.

    The latter with the reason if they would be worth their ranks but failed more often than the fewer ones: a failed
    run counts as the worst value, as in findings. One beyond them may be worth its ranks.
    """
    has_runs = rows["runtime_s"].notna()
    steps = list[_Step]()
    skipped: dict[int, str | None] = dict.fromkeys(rows.loc[~has_runs, "gpus"].astype(int))
    one: pd.Series | None = None
    for _, other in rows[has_runs].iterrows():
        if one is None:
            one = other
            continue
        times = compare_rows(runs, one["records"], other["records"], "runtime_s")
        work = compute_work_growth(one["scaling"], one["sharding"], other["gpus"] / one["gpus"])
        if not times.blocks or not math.isfinite(times.value):
            skipped[int(other["gpus"])] = None
            continue
        step = _Step(int(one["gpus"]), int(other["gpus"]), times.convert(functools.partial(operator.mul, work)))
        arms = {format_count(int(each["gpus"]), "rank"): runs_of(runs, each["records"]) for each in (one, other)}
        fewer, more = arms
        survivors = failed_runs.explain_survivors(arms, more if step.is_worth else fewer, ["runtime_s"])
        if survivors and step.is_worth:
            skipped[int(other["gpus"])] = survivors
            continue
        steps.append(dataclasses.replace(step, survivors=survivors))
        one = other
    return steps, skipped


def _write_sentence(ranks: int, step: _Step, most: int) -> str:
    estimate, low, high = step.speedup.numbers
    used = (estimate - 1) / (step.next_ranks / step.ranks - 1)
    has_interval, blocks = step.speedup.has_interval, format_count(step.speedup.blocks, "block")
    limits = [1.0, LEAST_GAIN]
    counted_blocks = step.speedup.alike or blocks
    interval = (
        f"95 % interval {format_significant(low, limits)} to {format_significant(high, limits)}, {counted_blocks}"
        if has_interval
        else f"{blocks}, too few for an interval"
    )
    comparison = (
        f"{format_count(step.next_ranks, 'rank')} get the work done {format_significant(estimate, limits)} times as "
        f"fast as {step.ranks} ({interval})"
    )
    added = step.next_ranks - step.ranks
    share = f"{100 * used:.0f} % of the {'added rank' if added == 1 else f'{added} added ranks'} is used"
    if has_interval and low <= 1 <= high:
        share = "no gain is shown"
    elif used < 0:
        share = "that is slower"
    parts = [f"{comparison}; {share}."]
    if has_interval and not step.speedup.find_side(step.least, step.least):
        parts.append("The interval includes the limit, so further blocks may change this.")
    if ranks == most:
        parts.append(f"More than {most} were not measured, and nothing is said about them.")
    return " ".join(parts)
