"""How many ranks a job deserves, by what was measured: the answer of the report, `findings` and `recommend`."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from dataclasses import dataclass

import pandas as pd

from study.compare import failed_runs
from study.compare.estimates import Estimate, estimate_difference, estimate_ratio
from study.core import fields
from study.core.wording import format_count, format_significant
from study.experiment import schemas
from study.experiment.parameters import is_observed, list_observing_keys
from study.experiment.study import compute_work_growth
from study.records import disturbed, targets
from study.records.program_times import MOST_GAIN
from study.records.tidy import QUALITY

LEAST_GAIN = 1.5  # speedup of a doubling that is worth its ranks: half of the added ones is used
GOAL = "at least half of the added ranks is used"
RULE = (
    f"The largest measured number of ranks up to which each doubling gets the work done at least {LEAST_GAIN:g} times "
    f"as fast, so that {GOAL}. Times are of the whole run, with start-up and loading. "
    "A number of ranks on which more runs failed than on fewer, or that is faster than its ranks can make it, is left "
    "out."
)
SERIES = schemas.list_series_columns()
NO_RUNS = "no successful runs to compare"
OVERSUBSCRIBED = "its ranks had fewer cores than they need (oversubscribed)"
MOST_GAIN_OF_INTERVAL = 1.02  # as MOST_GAIN, where the whole interval is above it
# Relative differences of the quality that are told: with an interval that excludes 0, and of one run each.
LEAST_DIFFERENCE, LEAST_DIFFERENCE_OF_RUNS = 0.01, 0.1
# Metrics of a user's own that tell of the quality, by their names; others may be rates.
OWN_QUALITY = re.compile(r".*(loss|acc|accuracy|error|perplexity|ppl|bleu|rouge|f1|auc|iou|mse|mae|wer|score|reward)")


@dataclass(frozen=True)
class Answer:
    """The answer for one workload.

    series: its name; ranks: None where no two numbers of ranks can be compared, though there are runs of two; records:
    of the runs behind the sentence; quality: how that of the same work differs, empty if it does not.
    """

    series: str
    ranks: int | None
    sentence: str
    records: list[str]
    quality: str = ""

    @property
    def headline(self) -> str:
        """The number with the goal that it is for, after what speaks against looking at the time alone."""
        number = f"{format_count(self.ranks, 'rank')} (goal: {GOAL})." if self.ranks else "No answer."
        return f"{self.quality} By time alone: {number}" if self.quality else number


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
    if runs.empty:
        return []
    observed = [is_observed(run, None) for run in runs[list_observing_keys()].to_dict("records")]
    groups = [
        rows for _, rows in runs[observed].groupby(SERIES, sort=False, dropna=False) if rows["gpus"].nunique() > 1
    ]
    series = zip(_name_series(groups), groups, strict=True)
    return [answer for name, rows in series if (answer := _answer_series(name, rows))]


def _name_series(groups: list[pd.DataFrame]) -> list[str]:
    """The benchmark of each series, with the values of the keys in which series of it differ."""
    firsts = pd.DataFrame([rows.iloc[0] for rows in groups])
    names = []
    for _, row in firsts.iterrows():
        alike = firsts[firsts["benchmark"] == row["benchmark"]]
        keys = [key for key in SERIES if key != "benchmark" and alike[key].nunique(dropna=False) > 1]
        names.append(", ".join([row["benchmark"], *(f"{key} {row[key]}" for key in keys)]))
    return names


def _answer_series(name: str, runs: pd.DataFrame) -> Answer | None:
    points = {int(ranks): rows for ranks, rows in runs.groupby("gpus", sort=True)}
    steps, refused, unknown = _find_steps(points)
    unproven = failed_runs.describe_unproven(runs)
    if not steps and not refused and set(unknown.values()) <= {NO_RUNS}:
        return None
    stop = next((step for step in steps if not step.is_worth), None)
    ranks = stop.ranks if stop else steps[-1].next_ranks if steps else None
    sentences = []
    if ranks:
        judged = stop or steps[-1]
        sentences.append(_write_sentence(ranks, judged, max(points)))
        sentences.append(f"But {judged.survivors}." if judged.survivors else "")
    for why in dict.fromkeys(unknown.values()):
        counts = ", ".join(str(count) for count, of_count in unknown.items() if of_count == why)
        sentences.append(f"Nothing is said about {counts}: {why}.")
    sentences += [f"Not {count}, whatever its times: {why}." for count, why in refused.items()]
    sentences.append(f"Left out: {unproven}." if unproven else "")
    sentences += _describe_stops(runs)
    sentences.append(_describe_processes(points))
    sentences += disturbed.sentence(int(runs["disturbed"].eq(True).sum()), len(runs), "run")
    return Answer(name, ranks, " ".join(filter(None, sentences)), list(runs["record"]), _describe_quality(points))


def _describe_quality(points: dict[int, pd.DataFrame]) -> str:
    """How the quality differs between numbers of ranks that did equal work, beyond its scatter; empty if it does not.

    The first measure that differs is told, those of data that was not trained on first.
    """
    used = {ranks: proven for ranks, runs in points.items() if len(proven := failed_runs.keep_proven(runs))}
    if len(used) < 2 or targets.number_stopped(pd.concat(used.values())):
        return ""
    (fewest, base), *others = used.items()
    first = base.iloc[0]
    for measure in _list_qualities(base):
        usual = float(base[measure].mean())
        differing = [
            f"{format_significant(float(runs[measure].mean()))} on {ranks}{' (one run each)' if alone else ''}"
            for ranks, runs in others
            if compute_work_growth(first["scaling"], first["sharding"], ranks / fewest) == 1
            and (difference := estimate_difference(runs, base, measure)).blocks
            for alone in [not difference.has_interval]
            if abs(difference.value) > (LEAST_DIFFERENCE_OF_RUNS if alone else LEAST_DIFFERENCE) * abs(usual)
            and (alone or difference.find_side(0, 0))
        ]
        if differing:
            return (
                f"The same work does not give the same quality: {measure} is {format_significant(usual)} on "
                f"{format_count(fewest, 'rank')}, {', '.join(differing)}."
            )
    return ""


def _list_qualities(runs: pd.DataFrame) -> list[str]:
    """The columns that tell how well runs trained, those of data that was not trained on first."""
    known = fields.list_columns()
    own = [name for name in runs.select_dtypes("number") if name not in known and OWN_QUALITY.fullmatch(name.lower())]
    there = [name for name in (*QUALITY, *own) if name in runs and runs[name].notna().any()]
    return sorted(there, key=lambda name: not name.startswith(("val", "test", "eval")))


def _describe_processes(points: dict[int, pd.DataFrame]) -> str:
    """That a program had as many processes on any number of ranks, as if it did not obey it; empty if it had not."""
    most = [rows["program_processes"].max() for rows in points.values() if "program_processes" in rows]
    if len(most) < 2 or pd.isna(most).any() or len(set(most)) > 1 or most[0] >= max(points):
        return ""
    number = "one process" if most[0] == 1 else f"{most[0]:.0f} processes"
    return f"The program had {number} on any number of ranks: does it obey the number that it gets?"


def _describe_stops(used: pd.DataFrame) -> list[str]:
    """What the work of programs is that stopped before their last epoch, as a sentence."""
    if not (number := targets.number_stopped(used)):
        return []
    return [f"{number} of {format_count(len(used), 'run')} stopped at the target: the work is the way to it."]


def _find_steps(points: dict[int, pd.DataFrame]) -> tuple[list[_Step], dict[int, str], dict[int, str]]:
    """The steps from each number of ranks to the next one that can be compared with it, and two kinds that cannot.

    Refused, with the reason, are those that would be worth their ranks but failed more often than the fewer ones (a
    failed run counts as the worst value, as in findings), or that are faster than their ranks can make them. Unknown,
    with the reason, are those without a comparison. One beyond them may be worth its ranks.
    """
    steps = list[_Step]()
    refused, unknown = dict[int, str](), dict[int, str]()
    fewer: int | None = None
    for ranks, runs in points.items():
        if "oversubscribed" in runs and runs["oversubscribed"].eq(True).all():
            unknown[ranks] = OVERSUBSCRIBED
            continue
        if failed_runs.keep_proven(runs)["runtime_s"].isna().all():
            is_unproven = failed_runs.mark_unproven(runs).any()
            unknown[ranks] = "its runs are unproven" if is_unproven else NO_RUNS
            continue
        if fewer is None:
            fewer = ranks
            continue
        base = points[fewer]
        times = estimate_ratio(base, runs, "runtime_s")
        work = compute_work_growth(runs["scaling"].iloc[0], runs["sharding"].iloc[0], ranks / fewer)
        if not times.blocks or not math.isfinite(times.value):
            unknown[ranks] = "; ".join(dict.fromkeys(times.left_out.values())) or NO_RUNS
            continue
        step = _Step(fewer, ranks, times.convert(functools.partial(operator.mul, work)))
        arms = {format_count(each, "rank"): points[each] for each in (fewer, ranks)}
        survivors = failed_runs.explain_survivors(arms, [*arms][step.is_worth], ["runtime_s"])
        has_larger_batch = runs["batch_size_per_rank"].max() > base["batch_size_per_rank"].max()
        doubt = None if has_larger_batch else explain_superlinear(step.speedup, fewer, ranks)
        if doubt or (survivors and step.is_worth):
            refused[ranks] = doubt or survivors or ""
            continue
        steps.append(dataclasses.replace(step, survivors=survivors))
        fewer = ranks
    return steps, refused, unknown


def explain_superlinear(speedup: Estimate, fewer: int, ranks: int) -> str | None:
    """Why a speedup from ``fewer`` ranks is doubted, as it is larger than the ranks' growth; None if it is not."""
    growth = ranks / fewer
    if not (speedup.value > MOST_GAIN * growth or speedup.low > MOST_GAIN_OF_INTERVAL * growth):
        return None
    return (
        f"{format_significant(speedup.value)} times as fast as {format_count(fewer, 'rank')} is more than "
        f"{growth:g} times the ranks can be: they did not do the same work, or something else slowed the fewer ones"
    )


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
