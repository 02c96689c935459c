"""A paper's claims, recomputed from this study's runs by the formulas that give the published numbers.

Its ``claims.yaml`` declares them. A claim selects runs, which are divided into arms; each pair of arms has an
`Estimate`, and the estimates make a row. Of a paper with ``quantities``, each experiment has a row: its runs differ in
the number of ranks only. Of other papers, each claim has one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from study.compare import failed_runs
from study.instruments.power.readings import MODELLED
from study.records.names import join_records
from study.records.power import NO_MEAN, OF_POWER, name_reason_column
from study.report.papers.claim_arms import Candidates, PaperRuns, compare_rank_counts, split_experiments
from study.report.papers.claim_estimates import Answer, answer_claim, check_own_form, mixes_power
from study.report.papers.declaration import OF_LOADS, Claim, Declared
from study.report.papers.published import select_rows
from study.report.papers.workload import differences, file_difference
from study.report.tables.published_values import NOT_STATED, describe_unstated_keys
from study.report.tables.summary import IDENTITY, POINT, WORKLOAD, count_kinds

LABELS = ("quantity", "benchmark", "unit", "stated", "follows_from", "not_published", "contradiction", "note")
# The keys of a claim, or of an experiment, in columns of their own; of a paper with ``quantities``.
KEYS = ("scaling", "batch_scaling", "gpus", "batch_size", "loader")
PUBLISHED = ("published_value", "published_lowest", "published_highest")
EMPTY: dict[str, Any] = {
    "value": math.nan, "lowest": math.nan, "highest": math.nan, "low": math.nan, "high": math.nan, "pairing": None,
    "blocks_alike": None, "repeats": None, "repeats_failed": None, "series": None, "measured_gpus": None,
    "load_share_pct": math.nan, "machine": None, "workload_difference": None, NOT_STATED: None, "oversubscribed": False,
    "power_source": None, "code_is_current": True, "records": None, "missing": None,
}  # fmt: skip
INTEGERS = ("repeats", "repeats_failed", "series", "gpus", "batch_size")


def recompute_claims(paper: Declared, runs: pd.DataFrame, loading: pd.DataFrame) -> pd.DataFrame:
    """The claims of a paper from our runs, and from its published numbers, which need no run.

    One row per claim; of a paper with ``quantities`` one per claim and experiment that has a value. A claim without a
    value has one row, which says what is missing.
    """
    for claim in paper.claims:
        check_own_form(claim, paper.paper)
    paper_runs = PaperRuns(paper, runs, loading)
    rows = [row for claim in paper.claims for row in _make_rows(paper, claim, paper_runs)]
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in INTEGERS if name in frame})


def list_workload_differences(frame: pd.DataFrame) -> list[str]:
    """The notes of the result of `recompute_claims`: how the runs' workloads differ from the paper's."""
    differing = frame.dropna(subset=["workload_difference"])
    texts = differing["workload_difference"].where(
        differing["benchmark"].isna(), differing["benchmark"].fillna("") + ": " + differing["workload_difference"]
    )
    return [f"not the paper's workload, so not comparable: {text}" for text in texts.unique()]


def _make_rows(paper: Declared, claim: Claim, paper_runs: PaperRuns) -> Iterator[dict[str, Any]]:
    """The rows of one claim."""
    candidates = paper_runs.find_candidates(claim)
    tried = candidates.tried
    answers_of_rows = [
        answer_claim(claim, runs) for runs in (split_experiments(claim, tried) if paper.quantities else [tried])
    ]
    if paper.table.get("largest_workload"):
        answers_of_rows = list(map(_keep_largest_workload, answers_of_rows))
    labels = EMPTY | _label_claim(paper, claim)
    answered = [answers for answers in answers_of_rows if answers and not math.isnan(answers[0].estimate.value)]
    for answers in answered:
        yield {**labels, **_describe_answers(paper, claim, answers)}
    if answered:
        return
    unanswered = [answer for answers in answers_of_rows for answer in answers if answer.missing]
    reasons = dict.fromkeys(answer.missing for answer in unanswered) or [claim.not_compared]
    missing = "; ".join(filter(None, reasons)) or _explain_missing(paper, claim, candidates)
    yield {**labels, **_describe_answers(paper, claim, unanswered[:1]), "missing": missing}


def _keep_largest_workload(answers: list[Answer]) -> list[Answer]:
    """The answers of the machine, dataset and epochs with the most features: all published points are of one."""
    if not answers:
        return []

    def identify(answer: Answer) -> tuple[Any, ...]:
        return tuple(answer.arms.one.iloc[0][["features", "machine", "dataset", "epochs"]])

    largest = max(map(identify, answers), key=lambda workload: workload[0])
    return [answer for answer in answers if identify(answer) == largest]


def _label_claim(paper: Declared, claim: Claim) -> dict[str, Any]:
    """What a row is about, and the published number."""
    labels = {name: getattr(claim, name) for name in LABELS} | {"paper_section": claim.section}
    numbers = paper.published.range(claim.published, benchmark=claim.benchmark)
    labels |= dict(zip(PUBLISHED, numbers, strict=True))
    if paper.quantities:
        usual = {} if "batch_scaling" in claim.one else {"batch_scaling": "none"}
        keys = {name: claim.at.get(name, usual.get(name)) for name in KEYS}
        return labels | keys | {"published_machine": claim.machine}
    labels["at"] = ";".join(f"{name}={value}" for name, value in claim.at.items()) or None
    return labels


def _describe_answers(paper: Declared, claim: Claim, answers: Sequence[Answer]) -> dict[str, Any]:
    """The columns of a row that follow from its numbers and the runs behind them; none without answers."""
    if not answers:
        return {}
    runs = pd.concat([side for answer in answers for side in answer.arms.sides]).drop_duplicates("record")
    good = failed_runs.keep_proven(runs)
    points = good.drop_duplicates([name for name in POINT if name in good])
    if claim.form == OF_LOADS:
        difference = file_difference(good.iloc[0])
    else:  # a key that the claim names counts as the paper's own
        workloads = points.assign(repeats_ok=1, **{name: points[name].astype("Int64") for name in WORKLOAD})
        difference = differences(paper.paper, workloads, own=(*claim.one, *claim.at))
    return {
        **(_label_experiment(claim, runs) if paper.quantities else {}),
        **_combine(answers, of_rank_counts=bool(paper.quantities)),
        "repeats_failed": int(runs["status"].ne("ok").sum()),
        "load_share_pct": _compute_share(claim, answers),
        "machine": "; ".join(sorted(runs["machine"].unique())),
        "workload_difference": difference,
        NOT_STATED: describe_unstated_keys((point for _, point in points.iterrows()), paper.paper),
        "oversubscribed": "oversubscribed" in runs and bool(runs["oversubscribed"].any()),
        "power_source": MODELLED if _is_modelled(claim, good) else None,
        "code_is_current": bool(runs["code_is_current"].all()),
        "records": join_records(runs["record"]),
    }


def _label_experiment(claim: Claim, runs: pd.DataFrame) -> dict[str, Any]:
    """The keys of a claim, and of those that it does not name the values that all of its runs have."""
    names = [name for name in (*IDENTITY, "page_cache") if name in runs and runs[name].nunique(dropna=False) == 1]
    common = {name: runs[name].iloc[0] for name in names if name == "loader" or name not in KEYS}
    ranks = ", ".join(map(str, sorted(runs["gpus"].unique()))) if "gpus" in runs else None
    return {**common, **{name: claim.at[name] for name in KEYS if name in claim.at}, "measured_gpus": ranks}


def _combine(answers: Sequence[Answer], of_rank_counts: bool = False) -> dict[str, Any]:
    """One number with its interval, or the range of several.

    Of several networks or points the value is their mean, which has no interval. of_rank_counts: of several rank counts
    there is no value, as a mean says nothing of any of them; the interval has the outermost ends of theirs.
    """
    estimates = [answer.estimate for answer in answers]
    values, lows, highs = zip(*(estimate.numbers for estimate in estimates), strict=True)
    several = len(estimates) > 1
    value, low, high = estimates[0].numbers
    if several and of_rank_counts:
        value, low, high = math.nan, float(np.min(lows)), float(np.max(highs))
    elif several:
        value, low, high = float(np.average(values, weights=[each.weight for each in answers])), math.nan, math.nan
    fewer_blocks = dict.fromkeys(estimate.alike for estimate in estimates if estimate.alike)
    return {
        "value": value,
        "lowest": float(min(values)) if several else math.nan,
        "highest": float(max(values)) if several else math.nan,
        "low": low,
        "high": high,
        "pairing": "; ".join(sorted({estimate.pairing for estimate in estimates if estimate.pairing})) or None,
        "blocks_alike": None if math.isnan(low) else "; ".join(fewer_blocks) or None,
        "repeats": min(estimate.blocks for estimate in estimates),
        "series": len(estimates) if several else None,
    }


def _compute_share(claim: Claim, answers: Sequence[Answer]) -> float:
    """The largest share of the claim's column ``share`` in the runtime of the other arm's runs, %."""
    others = [answer.arms.other for answer in answers if answer.arms.other is not None]
    if not claim.share or not others:
        return math.nan
    means = [failed_runs.keep_proven(runs)[[claim.share, "runtime_s"]].mean() for runs in others]
    return float(max(100 * mean[claim.share] / mean["runtime_s"] for mean in means))


def _is_modelled(claim: Claim, runs: pd.DataFrame) -> bool:
    """Whether a claim's power or energy is modelled, of some runs."""
    return claim.measure in OF_POWER and "power_source" in runs and bool(runs["power_source"].eq(MODELLED).any())


def _explain_missing(paper: Declared, claim: Claim, candidates: Candidates) -> str:
    """The runs, or the measurement in existing runs, that a claim would need."""
    runs, column = candidates.runs, claim.measure
    good = failed_runs.keep_proven(runs) if len(runs) else runs
    if len(runs) and good.empty and claim.form:
        return f"good runs: {count_kinds(runs['failure_kind'])}"
    examined = good if len(good) else candidates.paper_runs
    if column and len(examined) and (column not in examined or examined[column].isna().all()):
        reasons = examined[name_reason_column(column)].dropna().unique() if column in OF_POWER else ()
        return f"{column} of these runs: {'; '.join(reasons) or 'not measured'}"
    if column and len(good) and mixes_power(column, good):
        return f"{column} of these runs: {NO_MEAN}"
    return _describe_needed_runs(paper, claim, candidates, good)


def _describe_needed_runs(paper: Declared, claim: Claim, candidates: Candidates, good: pd.DataFrame) -> str:
    """The runs that a claim would need in words. good: the successful ones that are there."""
    subject = claim.benchmark or (None if "benchmark" in claim.one else paper.table.get("subjects"))
    compared = compare_rank_counts(claim, good)
    sides = [side for side in (compared.one, compared.other) if side]
    absent = [side for side in sides if select_rows(good, side).empty]
    at = {name: value for name, value in candidates.at.items() if name not in compared.one}
    others = candidates.other_machines
    parts = [
        f"of {subject}" if subject else None,
        f"with {' and '.join(f'({_spell_keys(side)})' for side in absent or sides)}" if sides else None,
        f"at {_spell_keys(at)}" if at else None,
        "that are alike in all else" if sides and not absent else None,
        "in two repeats" if claim.form == "spread_pct" else None,
        f"on {claim.machine}; those here are of {' and '.join(others)}" if others else None,
    ]
    return " ".join(["loading measurements" if claim.form == OF_LOADS else "runs", *filter(None, parts)])


def _spell_keys(keys: Mapping[str, Any]) -> str:
    """Values of keys in a message: ``gpus 32, loader read_csv or chunked``."""
    texts = {name: " or ".join(map(str, value)) if isinstance(value, tuple) else value for name, value in keys.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())
