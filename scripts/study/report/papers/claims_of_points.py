"""A paper's claims by the points of its tables, recomputed from its own tables and from this study's runs.

``points`` in its ``claims.yaml`` says what a point is, in the paper's columns. ``form`` is the formula, of the measure
of two points that differ only in ``one`` and ``other``:

- ratio: one / other
- change_pct: 100 x (one / other - 1)
- difference: one - other; of several points, the mean
- difference_pct: 100 x the sum of the differences / the sum of the others
- value: the measure itself; of several points, the mean

``at`` restricts the points. The published number is that of the paper's own points.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from study.compare import estimates
from study.core.statistics import difference
from study.records.names import join_records, runs_of
from study.records.power import OF_POWER
from study.report.papers import formulas
from study.report.papers.claims import ENDS, in_words, written
from study.report.papers.declaration import Claim, Declared
from study.report.papers.points import Points
from study.report.papers.published import selected
from study.report.papers.workload import differences
from study.report.tables.published_values import NOT_STATED, declared_differences, not_stated
from study.report.tables.summary import POINT, WORKLOAD

# What else differs between points that differ in a key.
FOLLOWS = {"memory_mode": ["machine"], "batch_size": ["batch_size_per_rank"], "gpus": ["epochs_per_rank"]}
NOTHING: dict[str, Any] = {
    "value": math.nan, "lowest": math.nan, "highest": math.nan, "interval_low": math.nan, "interval_high": math.nan,
    "pairing": None, "repeats": None, "repeats_failed": None, "missing": None, "workload_difference": None,
    "code_is_current": True, "records": None, NOT_STATED: None, "machine": None,
}  # fmt: skip


def recomputed(paper: Declared, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per claim: from our runs, and from the published tables.

    Points count if they have the paper's value of every grid key; data and epochs may differ, which
    ``workload_difference`` says. If there are several datasets, that with the most features counts. An interval is
    that of the ratio of one pair of points over their blocks.
    """
    ours = {name: _in_the_papers_way(source, runs, paper.paper) for name, source in paper.points.items()}
    rows = [_row(claim, ours, runs, paper) for claim in paper.claims]
    return pd.DataFrame(rows).astype({"repeats": "Int64", "repeats_failed": "Int64"})


def _in_the_papers_way(source: Points, runs: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Our points of the networks that the paper's points have."""
    points = source.of_runs(runs)
    if points.empty:
        return points
    good = points[(points["repeats_ok"] > 0) & points["benchmark"].isin(source.of_paper()["benchmark"])]
    return good[[not declared_differences(row, paper) for _, row in good.iterrows()]]


def _row(claim: Claim, ours: dict[str, pd.DataFrame], runs: pd.DataFrame, paper: Declared) -> dict[str, Any]:
    labels = {
        "quantity": claim.quantity,
        "measure": claim.measure,
        "at": written(claim.at),
        "unit": claim.unit,
        "stated": claim.stated,
        "paper_section": claim.section,
        "contradiction": claim.contradiction,
    }
    source = paper.points[claim.points or ""]
    found = _of_runs(claim, ours[claim.points or ""], source, runs, paper.paper)
    theirs = dict(zip(ENDS, _number(claim, _pairs(claim, source, source.of_paper())), strict=True))
    told = f"published: {source.what}"
    return {**labels, **found, **theirs, "source": f"runs; {told}" if found["missing"] is None else told}


def _of_runs(claim: Claim, points: pd.DataFrame, source: Points, runs: pd.DataFrame, paper: str) -> dict[str, Any]:
    """Our number and its origin, or what is missing for it."""
    pairs = _of_common_blocks(claim, _pairs(claim, source, points), source, runs) if len(points) else points
    if pairs.empty:
        return NOTHING | {"missing": _missing(claim, source, points)}
    value, lowest, highest = _number(claim, pairs)
    used = [pairs["records"]] + ([pairs["records_other"]] if "records_other" in pairs else [])
    repeats = pairs[[name for name in ("repeats_ok", "repeats_ok_other") if name in pairs]].to_numpy().min()
    current = pairs[[name for name in ("code_is_current", "code_is_current_other") if name in pairs]].to_numpy().all()
    crowded = pairs[[name for name in ("oversubscribed", "oversubscribed_other") if name in pairs]].to_numpy().any()
    measured = {"value": value, "lowest": lowest, "highest": highest, **_interval(claim, pairs, source, runs)}
    origin = {
        "repeats": int(repeats),
        "repeats_failed": sum(int(pairs[name].sum()) for name in pairs if name.startswith("repeats_failed")),
        # A key that the claim names counts as the paper's own.
        "workload_difference": differences(paper, pairs, own=(*claim.one, *claim.at)),
        "machine": "; ".join(sorted({*pairs["machine"], *pairs.get("machine_other", ())})),
        "oversubscribed": bool(crowded),
        NOT_STATED: not_stated((row for _, row in pairs.iterrows()), paper),
        "code_is_current": bool(current),
        "records": join_records(record for each in used for record in each),
    }
    return NOTHING | measured | origin


def _pairs(claim: Claim, source: Points, points: pd.DataFrame) -> pd.DataFrame:
    """The points that a claim is of, in pairs if it compares two; the column of the other is ``<measure>_other``."""
    measure, one, other = claim.measure, claim.one, claim.other
    known = selected(points, claim.at)
    known = known[known[measure].notna()]
    if not one:
        return _of_one_workload(known)
    axes = {name for axis in one for name in (axis, *FOLLOWS.get(axis, []))}
    same = [name for name in (*POINT, *WORKLOAD) if name in known and name not in axes]
    pairs = selected(known, one).merge(selected(known, other), on=same, suffixes=("", "_other"))
    of_power = source.columns.get(measure or "") in OF_POWER
    if of_power and {"power_source", "power_source_other"} <= {*pairs}:  # measured and modelled are not compared
        sources = pairs[["power_source", "power_source_other"]]
        pairs = pairs[sources.nunique(axis=1) < 2]
    return _of_one_workload(pairs)


def _of_common_blocks(claim: Claim, pairs: pd.DataFrame, source: Points, runs: pd.DataFrame) -> pd.DataFrame:
    """The pairs with their measure over the blocks that both points have, of which the interval is too.

    A repeat that only one of the two has does not count, nor does a block that cannot be compared; for what follows
    from the seeds, only one whose runs are not alike. Ratios are geometric means over the blocks.
    """
    measure, column = claim.measure, source.columns.get(claim.measure or "")
    if not claim.one or column is None:
        return pairs
    rows = []
    for _, pair in pairs.iterrows():
        one, other = (runs_of(runs, pair[name]) for name in ("records", "records_other"))
        estimate = estimates.estimate_difference if claim.form == "difference" else estimates.estimate_ratio
        found = estimate(one, other, column)
        mean_other = _mean_without(other, column, one, found.left_out)
        mean = mean_other + found.value if claim.form == "difference" else mean_other * found.value
        counts = {name: found.blocks for name in ("repeats_ok", "repeats_ok_other") if name in pair}
        rows.append({**pair, measure: mean, f"{measure}_other": mean_other, **counts})
    compared = pd.DataFrame(rows, columns=pairs.columns)
    return compared[compared[measure].notna()]


def _mean_without(arm: pd.DataFrame, column: str, other: pd.DataFrame, left_out: Mapping[Any, str]) -> float:
    """The mean of an arm over the blocks that the other has too, without those that are left out."""
    one, other = (each[each["status"] == "ok"].dropna(subset=[column]) for each in (arm, other))
    used = one["block"].isin(other["block"]) & ~one["block"].isin(list(left_out))
    return float(one.loc[used, column].astype(float).mean())


def _of_one_workload(points: pd.DataFrame) -> pd.DataFrame:
    """The points of the machine, dataset and epochs with the most features; all published ones are of one."""
    names = [name for name in ("machine", "dataset", "epochs", "features") if name in points]
    if points.empty or "dataset" not in names:
        return points
    first = points.sort_values("features", ascending=False, kind="stable").iloc[0]
    return points[(points[names] == first[names]).all(axis=1)]


def _number(claim: Claim, pairs: pd.DataFrame) -> tuple[float, float, float]:
    """(value, lowest, highest); the last two only of several points."""
    if pairs.empty:
        return math.nan, math.nan, math.nan
    one = pairs[claim.measure].astype(float)
    other = pairs[f"{claim.measure}_other"].astype(float) if claim.one else one
    each = formulas.of_two(claim.form or "", one, other)
    value = 100 * difference(one, other).sum() / other.sum() if claim.form == "difference_pct" else each.mean()
    several = len(each) > 1
    return float(value), float(each.min()) if several else math.nan, float(each.max()) if several else math.nan


def _interval(claim: Claim, pairs: pd.DataFrame, source: Points, runs: pd.DataFrame) -> dict[str, Any]:
    """The 95 % interval of a ratio of two points, and whether they were run interleaved; empty for other forms."""
    column = source.columns.get(claim.measure or "")
    if claim.form not in ("ratio", "change_pct", "difference_pct") or column is None or len(pairs) > 1:
        return {}
    pair = pairs.iloc[0]
    found = estimates.compare_rows(runs, pair["records"], pair["records_other"], column, judged=True)
    found = found.convert(functools.partial(formulas.of_ratio, claim.form))
    return {
        "interval_low": found.low,
        "interval_high": found.high,
        "pairing": found.pairing,
        "blocks_alike": found.alike,
    }


def _missing(claim: Claim, source: Points, points: pd.DataFrame) -> str:
    """The runs, or the measurement in existing runs, that a claim would need."""
    needed = [f"({in_words(keys)})" for keys in (claim.one, claim.other) if keys]
    at = f" at {in_words(claim.at)}" if claim.at else ""
    if len(points) and claim.measure in points and points[claim.measure].isna().all():
        reasons = "; ".join(points["power_reason"].dropna().unique())
        return f"{claim.measure} of these runs: {reasons or 'not measured'}"
    return f"runs of {source.what}{' with ' if needed else ''}{' and '.join(needed)}{at}"
