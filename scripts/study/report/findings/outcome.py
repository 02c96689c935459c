"""The outcome of a finding: its verdict, sentence and numbers, from the rows of the runs that it compares."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from study.compare import estimates, failed_runs, first_verdicts, likeness, references
from study.compare.estimates import OTHER_NODES, UNPAIRED, Estimate
from study.compare.first_verdicts import FirstVerdicts
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS  # with two, an interval fails too often
from study.core import paths
from study.core.files import to_finite_or_none
from study.core.wording import describe_alike_blocks, format_count, format_significant
from study.experiment.study import PlannedRun, Study
from study.records import disturbed, overlap
from study.report.findings.declaration import Finding, load_finding, select_arms
from study.report.findings.kinds import ALONG, VALUE

YES, OPPOSITE, NO, NOT_ENOUGH = "yes", "opposite", "no", "not_enough_runs"
ON_OTHER_NODES = "Its numbers of nodes had batch jobs of their own, on other nodes and at other times."
ADDED = "added after a verdict was seen"
IN_STEPS = ("epochs_to_target",)  # quantities of whole numbers; accuracies are shares of a few samples
LEAST_EQUAL = 6  # 2 x 0.5 ** 6 is below 0.05
VERDICTS = {YES: "Yes", OPPOSITE: "Opposite", NO: "Not shown", NOT_ENOUGH: "Not enough runs"}  # as people read them


@dataclass(frozen=True)
class Outcome:
    """A finding's outcome as in findings.json, see config/schemas/study_findings.schema.yaml."""

    name: str
    title: str
    verdict: str
    sentence: str
    quantity: str
    unit: str
    estimate: float | None
    low: float | None
    high: float | None
    blocks: int
    blocks_disturbed: int
    runs: int
    left_out: list[dict[str, str]]
    records: list[str]
    figure: str | None
    table: str | None
    look_for: str | None
    blocks_worth: float | None


def judge_findings(study: Study, runs: pd.DataFrame, earlier: FirstVerdicts | None = None) -> list[Outcome]:
    """The outcomes of all findings of a study.

    runs: rows of the tidy table, at least those that they compare. earlier: see `judge_finding`, by the finding's name.
    """
    return [judge_finding(load_finding(name), study, runs, (earlier or {}).get(name)) for name in study.findings]


def add_first_verdicts(outcomes: Iterable[Outcome], runs: pd.DataFrame, earlier: FirstVerdicts) -> dict[str, list[str]]:
    """The runs of the first verdict of each finding, after these outcomes. runs, earlier: as for `judge_findings`."""
    digests = {row["record"]: first_verdicts.compute_digest(row) for _, row in runs.iterrows()}
    verdicts = {each.name: [digests[name] for name in each.records] for each in outcomes if each.verdict != NOT_ENOUGH}
    return {**earlier, **verdicts}


def to_json(study: Study, machine: str, outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """The content of findings.json."""
    return {"study": study.name, "machine": machine, "findings": [asdict(each) for each in outcomes]}


def judge_finding(finding: Finding, study: Study, runs: pd.DataFrame, first: list[str] | None = None) -> Outcome:
    """The outcome of one finding.

    Runs that failed, were not alone on their host, or lacked cores, and blocks that are incomplete or not alike, are
    left out. Failures take part in the verdict: see `study.compare.failed_runs.explain_survivors`.

    first: the runs of an earlier verdict (`study.compare.first_verdicts`), which stands if repeats were added since.
    """
    runs = runs.assign(overlapped=overlap.mark_overlapping_runs(runs))
    rows = {value: _select_rows(finding, planned, runs) for value, planned in select_arms(finding, study).items()}
    positive = (VALUE,) if finding.kind.divides else ()
    why_not = likeness.explain_left_out_runs(rows, _list_columns(finding), (VALUE, ALONG), positive)
    used = _drop_runs(rows, why_not)
    digests = {run["record"]: first_verdicts.compute_digest(run) for _, run in pd.concat(used.values()).iterrows()}
    why_not |= dict.fromkeys(first_verdicts.find_later_runs(first, digests), ADDED)
    used = _drop_runs(rows, why_not)
    estimate = finding.kind.compare(used)
    blocks_disturbed = _count_disturbed_blocks(used)
    remarks = _describe_left_out(why_not)
    remarks += [f"{why}."] if (why := failed_runs.describe_unproven(pd.concat(rows.values()))) else []
    remarks += disturbed.sentence(blocks_disturbed, estimate.blocks, "block")
    remarks += _describe_versions(used)
    remarks += [ON_OTHER_NODES] if estimate.pairing == OTHER_NODES else []
    verdict, sentence = _write_verdict(finding, estimate, _explain_doubt(finding, rows, estimate, why_not))
    if verdict == NOT_ENOUGH and estimate.blocks >= LEAST_BLOCKS and estimate.pairing != UNPAIRED:
        estimate = dataclasses.replace(estimate, value=math.nan, low=math.nan, high=math.nan)  # of survivors
    remarks += _describe_fewer_blocks(estimate)
    return Outcome(
        name=finding.name,
        title=finding.title,
        verdict=verdict,
        sentence=" ".join([sentence, *remarks]),
        quantity=finding.formula,
        unit=finding.unit,
        estimate=to_finite_or_none(estimate.value),
        low=to_finite_or_none(estimate.low),
        high=to_finite_or_none(estimate.high),
        blocks=estimate.blocks,
        blocks_disturbed=blocks_disturbed,
        runs=sum(map(len, used.values())),
        left_out=[{"record": record, "reason": reason} for record, reason in why_not.items()],
        records=[record for each in used.values() for record in each["record"]],
        figure=finding.figure if finding.figure in study.figures else None,
        table=finding.table if finding.table in study.tables else None,
        look_for=finding.look_for,
        blocks_worth=to_finite_or_none(estimate.worth),
    )


def _select_rows(finding: Finding, planned: list[PlannedRun], runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of an arm, with what is compared."""
    names = [paths.locate_record("", run.directory).removeprefix("/") for run in planned]
    rows = runs[runs["record"].isin(names)]
    along = finding.along.compute(rows) if finding.along else 0.0
    return rows.assign(**{VALUE: finding.quantity.compute(rows), ALONG: along})


def _list_columns(finding: Finding) -> set[str]:
    """The columns that the finding is made from."""
    return {*finding.quantity.columns, *(finding.along.columns if finding.along else ())}


def _drop_runs(arms: dict[Any, pd.DataFrame], left_out: Collection[str]) -> dict[Any, pd.DataFrame]:
    """The arms without these records."""
    return {value: runs[~runs["record"].isin(list(left_out))] for value, runs in arms.items()}


def _explain_doubt(
    finding: Finding, rows: dict[Any, pd.DataFrame], estimate: Estimate, why_not: dict[str, str]
) -> str | None:
    """Why there is no verdict though there is an interval; None if there is one."""
    return (
        _explain_survivors(finding, rows, estimate)
        or _explain_few_blocks(rows, estimate, why_not)
        or _explain_ties(finding, estimate)
    )


def _explain_ties(finding: Finding, estimate: Estimate) -> str | None:
    """Why there is no verdict if all blocks of a quantity in steps differ by the same; None if there are enough.

    An interval without width would be certainty. By the sign test, `LEAST_EQUAL` equal blocks are significant.
    """
    in_steps = any(name in IN_STEPS or name.endswith("accuracy") for name in _list_columns(finding))
    is_tie = in_steps and estimate.low == estimate.high != finding.kind.no_effect
    if not is_tie or estimate.blocks >= LEAST_EQUAL:
        return None
    return (
        f"all {estimate.blocks} blocks differ by the same; of {finding.quantity}, which has steps, a verdict without "
        f"any scatter needs {LEAST_EQUAL} blocks"
    )


def _explain_few_blocks(rows: dict[Any, pd.DataFrame], estimate: Estimate, why_not: dict[str, str]) -> str | None:
    """Why the blocks that can be compared are too few of all: what is left of most would be a choice. None if not."""
    there = [set(each.loc[each["record"].map(why_not).ne(ADDED), "block"]) for each in rows.values()]
    blocks = len(set.intersection(*there))
    if estimate.blocks < LEAST_BLOCKS or references.are_enough(estimate.blocks, blocks):
        return None
    return f"only {estimate.blocks} of {blocks} blocks can be compared"


def _explain_survivors(finding: Finding, rows: dict[Any, pd.DataFrame], estimate: Estimate) -> str | None:
    """Why the estimate is one of survivors, whose verdict would be another with those that failed; None if it is not.

    Of two arms, the failures of the worse one do not speak for it. Of a trend, or of a claim that arms do not differ,
    all arms must fail equally often.
    """
    named = {f"{finding.key} {value}": each for value, each in rows.items()}
    quantity, more_is_better = finding.quantity, None
    if finding.kind.divides and finding.within is None and not (quantity.minus or quantity.share_of):
        more_is_better = failed_runs.find_better_direction(quantity.column)
    if more_is_better and finding.kind.is_reduction:
        more_is_better = -more_is_better
    return estimates.explain_survivors(estimate, named, more_is_better, _list_columns(finding), finding.kind.no_effect)


def _write_verdict(finding: Finding, estimate: Estimate, survivors: str | None) -> tuple[str, str]:
    """The verdict and the sentence with its numbers. survivors: of `_explain_survivors`."""
    if survivors or estimate.blocks < LEAST_BLOCKS or not estimate.has_interval:
        why = survivors or f"{estimate.blocks} of at least {LEAST_BLOCKS} complete blocks"
        if not survivors and estimate.pairing == UNPAIRED:
            why = (
                f"by their clocks, the {estimate.blocks} blocks did not run one after the other, nor each in one batch "
                "job; if a clock was set meanwhile, run them again"
            )
        elif not survivors and math.isinf(estimate.low):
            why = f"{finding.along} cannot be shown to change along the values of {finding.key}"
        return NOT_ENOUGH, f"{finding.sentences[NOT_ENOUGH].format()} ({why})."
    case = _decide_verdict(finding, estimate)
    number = _format_estimate(finding, estimate, _has_opposite_sign(finding, estimate, case))
    return case, finding.sentences[case].format(number=number)


def _has_opposite_sign(finding: Finding, estimate: Estimate, case: str) -> bool:
    """Whether the sentence has the estimate with the other sign.

    A clear fall is told by its size: "falls by 3 %", not "falls by -3 %". Where no difference is shown, a reduction is
    told as a change: "changes by -3 %".
    """
    if case == NO:
        return finding.kind.is_reduction
    return finding.kind.no_effect == 0 and estimate.high < 0


def _decide_verdict(finding: Finding, estimate: Estimate) -> str:
    """`YES`, `NO` or `OPPOSITE`, by the place of the interval."""
    margin = finding.within or 0
    low, high = finding.kind.no_effect - margin, finding.kind.no_effect + margin
    side = estimate.find_side(low, high)
    if finding.within is None:
        return NO if side == 0 else YES if side == finding.claim else OPPOSITE
    return OPPOSITE if side else YES if estimate.is_within(low, high) else NO


def _format_estimate(finding: Finding, estimate: Estimate, turned: bool) -> str:
    """``12.3 % (95 % interval 11 to 14 %, 6 blocks)``."""
    numbers, limits = (estimate.value, estimate.low, estimate.high), finding.limits
    if turned:
        numbers = (0 - estimate.value, 0 - estimate.high, 0 - estimate.low)  # no -0.0
        limits = [0 - limit for limit in limits]
    middle, low, high = (format_significant(number, limits) for number in numbers)
    unit = finding.unit.split(" per ")[0]
    unit = "" if unit == "1" else f" {unit}"
    return f"{middle}{unit} (95 % interval {low} to {high}{unit}, {estimate.blocks} blocks)"


def _describe_left_out(why_not: dict[str, str]) -> list[str]:
    """How many runs were left out and why, as a sentence; empty if none was."""
    if not why_not:
        return []
    kinds = [reason.partition(":")[0] for reason in why_not.values()]
    counts = ", ".join(f"{format_count(kinds.count(each), 'run')} ({each})" for each in dict.fromkeys(kinds))
    return [f"Left out: {counts}."]


def _count_disturbed_blocks(used: dict[Any, pd.DataFrame]) -> int:
    """In how many blocks a run was disturbed by other use of its hosts."""
    rows = pd.concat(used.values())
    return rows.loc[rows["disturbed"].eq(True), "block"].nunique() if "disturbed" in rows else 0


def _describe_versions(used: dict[Any, pd.DataFrame]) -> list[str]:
    """That the blocks are of several versions, each block of one: the estimate is a mean over them."""
    rows = pd.concat(used.values())
    differences = [difference for column, difference in likeness.ALIKE.items() if _varies(rows, column)]
    return [f"Its blocks are of {' and '.join(differences)}."] if differences else []


def _describe_fewer_blocks(estimate: Estimate) -> list[str]:
    """That the interval counts the blocks as fewer, if it does."""
    words = describe_alike_blocks(estimate.blocks, estimate.worth) if estimate.has_interval else ""
    return [f"In the interval, its {estimate.blocks} blocks are {words}."] if words else []


def _varies(rows: pd.DataFrame, column: str) -> bool:
    """Whether a column differs between blocks, of arms in which it may not differ by themselves."""
    keys = [key for key in likeness.FREED_BY[column] if key in rows]
    if column not in rows or rows[column].nunique() < 2:
        return False
    return bool(rows.groupby(keys, dropna=False)[column].nunique().gt(1).any()) if keys else True


def to_markdown(study: Study, machine: str, outcomes: Iterable[Outcome]) -> str:
    """The page findings.md."""
    parts = [f"# Findings of study {study.name} on machine {machine}"]
    for each in outcomes:
        parts.append(f"## {each.title}\n\n**{VERDICTS[each.verdict]}.** {each.sentence}")
        places = [f"figure `{each.figure}`" if each.figure else "", f"table `{each.table}`" if each.table else ""]
        if where := " and ".join(filter(None, places)):
            parts.append(f"See {where}." + (f" Look for: {each.look_for}" if each.look_for else ""))
        unit = "as a ratio" if each.unit == "1" else f"in {each.unit}"
        parts.append(f"Estimate: {each.quantity}, {unit}, from {format_count(each.runs, 'run')}:")
        parts.append("\n".join(f"- {record}" for record in each.records) or "- none")
        if each.left_out:
            listed = "\n".join(f"- {one['record']}: {one['reason']}" for one in each.left_out)
            parts.append(f"Left out:\n\n{listed}")
    return "\n\n".join(parts) + "\n"
