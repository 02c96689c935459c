"""A paper's claims, recomputed from this study's runs by the formulas that give the published numbers.

Its ``claims.yaml`` declares them. ``form`` is the formula over ``measure``, of runs that differ only in ``one`` and
``other``:

- value, value_pct: the mean over the repeats, and 100 x the mean
- spread_pct: 100 x (longest / shortest - 1) over the repeats
- ratio, change_pct, loss_pct: one / other, and 100 x (one / other - 1), 100 x (1 - one / other)
- efficiency: one / other / (ranks of one / ranks of other)
- difference: mean of one - mean of other

``at`` restricts the runs.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.compare.estimates import Estimate, estimate_difference, estimate_ratio, without_survivors
from study.core.statistics import difference, summarize
from study.instruments.power.readings import MODELLED
from study.records.names import join_records
from study.records.power import OF_POWER, has_no_mean
from study.report.papers import formulas
from study.report.papers.declaration import Claim, Declared
from study.report.papers.published import selected
from study.report.papers.workload import differences
from study.report.tables.published_values import NOT_STATED, not_stated
from study.report.tables.summary import IDENTITY, WORKLOAD

# What else differs between runs that differ in a key; another network has its own files.
FOLLOWS = {
    "benchmark": ("dataset", "train_samples", "test_samples", "features"),
    "input_sharing": ("preprocessing_ranks",),  # of which each way of sharing has its own number
}
ENDS = ("published_value", "published_lowest", "published_highest")
SCALE = {"value": 1, "value_pct": 100}
OF_CHECKPOINTS = ("checkpoint_write_s",)  # of runs with checkpoints, which slow the run: all else is of runs without
NOTHING: dict[str, Any] = {
    "value": math.nan, "lowest": math.nan, "highest": math.nan, "interval_low": math.nan, "interval_high": math.nan,
    "pairing": None, "blocks_alike": None,
    "repeats": None, "repeats_failed": None, "series": None, "workload_difference": None,
    "code_is_current": True, "oversubscribed": False, "power_source": None, "records": None, "missing": None,
    NOT_STATED: None, "machine": None,
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A claim's number from the runs of one experiment. failed: how many further repeats failed."""

    estimate: Estimate
    runs: pd.DataFrame
    failed: int = 0


def recomputed(paper: Declared, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per claim of a paper: from our runs, and from the published numbers, which need no run."""
    rows = [_row(claim, runs, paper) for claim in paper.claims]
    return pd.DataFrame(rows).astype(dict.fromkeys(("repeats", "repeats_failed", "series"), "Int64"))


def remarks(frame: pd.DataFrame) -> list[str]:
    """The notes of the result of `recomputed`: how the runs' workloads differ from the paper's."""
    told = frame["workload_difference"].dropna().unique()
    return [f"not the paper's workload, so not comparable: {each}" for each in told]


def labels_of(paper: Declared) -> list[str]:
    """The keys of claims that stand beside their numbers: those that some claim has, and the usual ones."""
    more = [name for name in ("follows_from", "not_published") if any(getattr(each, name) for each in paper.claims)]
    return ["quantity", "benchmark", "at", "unit", *more, "stated", "contradiction"]


def _row(claim: Claim, runs: pd.DataFrame, paper: Declared) -> dict[str, Any]:
    numbers = paper.published.range(claim.published, benchmark=claim.benchmark)
    labels = {name: getattr(claim, name) for name in labels_of(paper)} | {"at": written(claim.at)}
    labels |= {"paper_section": claim.section, **dict(zip(ENDS, numbers, strict=True))}
    found = [] if claim.form is None or runs.empty else list(_found(claim, runs))
    if not found:
        return {**labels, **NOTHING, "missing": claim.not_compared or _missing(claim, runs, paper)}
    used = (row for each in found for _, row in each.runs.iterrows())
    return {**labels, **NOTHING, **_numbers(found, paper, claim), NOT_STATED: not_stated(used, paper.paper)}


def _numbers(found: list[Found], paper: Declared, claim: Claim) -> dict[str, Any]:
    """The columns of a claim from the numbers of its experiments; an interval if there is one experiment."""
    known = [each.estimate for each in found]
    numbers = [each.value for each in known]
    used = pd.concat([each.runs for each in found])
    several = len(found) > 1
    return {
        "value": sum(numbers) / len(numbers),
        "lowest": min(numbers) if several else math.nan,
        "highest": max(numbers) if several else math.nan,
        "interval_low": math.nan if several else known[0].low,
        "interval_high": math.nan if several else known[0].high,
        "pairing": "; ".join(sorted({each.pairing for each in known if each.pairing})) or None,
        "repeats": min(each.blocks for each in known),
        "repeats_failed": sum(each.failed for each in found),
        "blocks_alike": None if several else known[0].alike,
        "series": len(found) if several else None,
        "workload_difference": differences(paper.paper, used.assign(repeats_ok=1)),
        "machine": "; ".join(sorted(used["machine"].unique())),
        "code_is_current": bool(used["code_is_current"].all()),
        **_conditions(used, claim.measure),
        "records": join_records(used["record"]),
    }


def _conditions(used: pd.DataFrame, measure: str | None) -> dict[str, Any]:
    """What a reader needs to know of the runs: whether ranks lacked cores, and where their power is from."""
    crowded = "oversubscribed" in used and bool(used["oversubscribed"].any())
    modelled = measure in OF_POWER and "power_source" in used and used["power_source"].eq(MODELLED).any()
    return {"oversubscribed": crowded, "power_source": MODELLED if modelled else None}


def _found(claim: Claim, runs: pd.DataFrame) -> Iterator[Found]:
    """The claim's number from each experiment that has one."""
    form, measure = claim.form, claim.measure
    if form is None or measure is None or measure not in runs:
        return
    network = {"benchmark": claim.benchmark} if claim.benchmark else {}
    writes = runs["checkpoint_epochs"].ne(0) if measure in OF_CHECKPOINTS else runs["checkpoint_epochs"].eq(0)
    tried = writes & ((runs["status"] != "ok") | runs[measure].notna())
    given = selected(runs[tried], {**network, **claim.at})
    one, other = claim.one, claim.other
    first, second = selected(given, one), selected(given, other)
    if first.empty or (one and second.empty):
        return
    axes = {name for key in one for name in (key, *FOLLOWS.get(key, ()))}
    following = [name for name in IDENTITY if name in given and name in axes and name not in one]
    same = [name for name in (*IDENTITY, *WORKLOAD) if name in given and name not in axes]
    if "step" in measure and not axes & {"benchmark", "batch_size"}:  # of as many samples
        same += [name for name in ("batch_size_per_rank",) if name in given]
    first, second = (_with_workload(each, same) for each in (first, second))
    others = dict(list(second.groupby(same, dropna=False, sort=False))) if one else {}
    for key, group in first.groupby(same, dropna=False, sort=False):
        if not one:
            yield from _of_one(form, group, measure)
        elif key in others:
            for sides in _of_equal_datasets(group, others[key]):
                for mine, theirs in itertools.product(*(_parts(side, following) for side in sides)):
                    yield from _of_two(form, mine, theirs, measure)


def _parts(runs: pd.DataFrame, keys: list[str]) -> list[pd.DataFrame]:
    """The runs by the values of grid keys that follow another: each is an experiment of its own."""
    return [part for _, part in runs.groupby(keys, sort=False)] if keys else [runs]


def _of_equal_datasets(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """The two sides by dataset; of two networks with one dataset each, these may differ."""
    if "dataset" not in one or (one["dataset"].nunique() == other["dataset"].nunique() == 1):
        yield one, other
        return
    for dataset in sorted({*one["dataset"]} & {*other["dataset"]}):
        yield one[one["dataset"] == dataset], other[other["dataset"] == dataset]


def _with_workload(rows: pd.DataFrame, same: list[str]) -> pd.DataFrame:
    """The rows, in which failed runs have the workload of their point's successful ones, which only these know."""
    unknown = [name for name in same if name in (*WORKLOAD, "batch_size_per_rank")]
    keys = [name for name in same if name not in unknown]
    if rows.empty or not unknown or not keys:
        return rows
    first = rows.groupby(keys, dropna=False)[unknown].transform("first")
    return rows.assign(**{name: rows[name].where(rows["status"] == "ok", first[name]) for name in unknown})


def _good(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["status"] == "ok"]


def _of_one(form: str, given: pd.DataFrame, measure: str) -> Iterator[Found]:
    group, failed = _good(given), int((given["status"] != "ok").sum())
    sample = summarize(group[measure])
    if form in SCALE and sample.n:
        mean, half = SCALE[form] * sample.mean, SCALE[form] * sample.ci95
        yield Found(Estimate(mean, mean - half, mean + half, sample.n), group, failed)
    elif sample.n > 1:  # spread_pct: one run has none
        spread = 100 * (group[measure].max() / group[measure].min() - 1)
        yield Found(Estimate(float(spread), blocks=sample.n), group, failed)


def _of_two(form: str, one: pd.DataFrame, other: pd.DataFrame, measure: str) -> Iterator[Found]:
    if (found := _compared(form, one, other, measure)) is not None:
        both = pd.concat([one, other])
        failed = int((both["status"] != "ok").sum())
        yield Found(found, _good(both), failed)


def _compared(form: str, one: pd.DataFrame, other: pd.DataFrame, measure: str) -> Estimate | None:
    """The number of two sets of runs, without the interval of survivors; None if they have none."""
    arms = {"one": one, "other": other}
    good = [_good(each) for each in arms.values()]
    if any(each.empty for each in good):
        return None
    if form == "difference":
        found = _estimate_difference(good[0], good[1], measure)
        return found and without_survivors(found, arms, measure, no_effect=0.0)
    ratio = estimate_ratio(one, other, measure)
    if not ratio.blocks:
        return None
    ranks = good[0]["gpus"].iloc[0] / good[1]["gpus"].iloc[0]
    return without_survivors(ratio, arms, measure).convert(lambda each: formulas.of_ratio(form, each, ranks))


def _estimate_difference(one: pd.DataFrame, other: pd.DataFrame, measure: str) -> Estimate | None:
    """The mean difference within blocks; without common blocks that of the means, and None without any."""
    if has_no_mean(pd.concat([one, other]), measure):
        return None
    found = estimate_difference(one, other, measure)
    if found.blocks or found.left_out:
        return found if found.blocks else None
    means = difference(summarize(one[measure]).mean, summarize(other[measure]).mean)
    return Estimate(means, blocks=min(len(one), len(other)))


def _missing(claim: Claim, runs: pd.DataFrame, paper: Declared) -> str:
    """The runs, or the measurement in existing runs, that a claim would need."""
    measure = claim.measure
    if len(runs) and (measure not in runs or runs[measure].isna().all()):
        return f"{measure} of these runs: not measured"
    needed = [f"({in_words(keys)})" for keys in (claim.one, claim.other) if keys]
    of = claim.benchmark or (None if "benchmark" in claim.one else paper.table.get("subjects"))
    at = f" at {in_words(claim.at)}" if claim.at else ""
    told = [f"of {of}" if of else None, f"with {' and '.join(needed)}" if needed else None]
    again = " in two repeats" if claim.form == "spread_pct" else ""
    return f"runs {' '.join(filter(None, told))}{at}{again}"


def written(keys: Mapping[str, Any]) -> str | None:
    """Values of keys for a cell: ``gpus=32;storage=nvme``; None without any."""
    return ";".join(f"{name}={value}" for name, value in keys.items()) or None


def in_words(keys: Mapping[str, Any]) -> str:
    """Values of keys in a message: ``gpus 32, storage nvme``."""
    return ", ".join(f"{name} {value}" for name, value in keys.items())
