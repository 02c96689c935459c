"""The outcome of a finding: its verdict, sentence and numbers, from the rows of the runs that it compares."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from study.compare import failed_runs, first_verdicts, likeness
from study.compare.estimates import UNPAIRED, Estimate
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS  # with two, an interval fails too often
from study.core import paths
from study.core.files import number_or_none
from study.core.wording import alike_blocks, counted, significant
from study.experiment.study import PlannedRun, Study
from study.instruments.power.readings import MODELLED
from study.records import disturbed, overlap
from study.records.power import OF_POWER
from study.report.findings.declaration import Declared, arms, load
from study.report.findings.kinds import ALONG, VALUE

YES, OPPOSITE, NO, NOT_ENOUGH = "yes", "opposite", "no", "not_enough_runs"
INTERRUPTED = "its block was interrupted: runs of two starts of the workflow"
ADDED = "added after a verdict was seen"
LEAST_SHARE = 0.5  # of the blocks that all arms have: fewer that can be compared are a choice
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


def outcomes(study: Study, runs: pd.DataFrame, earlier: first_verdicts.FirstVerdicts | None = None) -> list[Outcome]:
    """The outcomes of all findings of a study.

    runs: rows of the tidy table, at least those that they compare. earlier: see `outcome`, by the finding's name.
    """
    return [outcome(load(name), study, runs, (earlier or {}).get(name)) for name in study.findings]


def seen(found: Iterable[Outcome], runs: pd.DataFrame, earlier: first_verdicts.FirstVerdicts) -> dict[str, list[str]]:
    """The runs of the first verdict of each finding, after these outcomes. runs, earlier: as for `outcomes`."""
    digests = {row["record"]: first_verdicts.compute_digest(row) for _, row in runs.iterrows()}
    verdicts = {each.name: [digests[name] for name in each.records] for each in found if each.verdict != NOT_ENOUGH}
    return {**earlier, **verdicts}


def as_json(study: Study, machine: str, found: Iterable[Outcome]) -> dict[str, Any]:
    """The content of findings.json."""
    return {"study": study.name, "machine": machine, "findings": [asdict(each) for each in found]}


def outcome(finding: Declared, study: Study, runs: pd.DataFrame, first: list[str] | None = None) -> Outcome:
    """The outcome of one finding.

    Runs that failed, were not alone on their host, or lacked cores, and blocks that are incomplete or not alike, are
    left out. Failures take part in the verdict: see `study.compare.failed_runs.explain_survivors`.

    first: the runs of an earlier verdict (`study.compare.first_verdicts`), which stands if repeats were added since.
    """
    runs = runs.assign(overlapped=overlap.mark_overlapping_runs(runs))
    rows = {value: _rows(finding, planned, runs) for value, planned in arms(finding, study).items()}
    why_not = _left_out(finding, rows)
    used = {value: each[~each["record"].isin(why_not)] for value, each in rows.items()}
    now = pd.concat(used.values())
    if first_verdicts.is_standing(first, [first_verdicts.compute_digest(run) for _, run in now.iterrows()]):
        late = [
            run["record"] for _, run in now.iterrows() if first_verdicts.compute_digest(run) not in set(first or ())
        ]
        why_not = why_not | dict.fromkeys(late, ADDED)
        used = {value: each[~each["record"].isin(late)] for value, each in used.items()}
    found = finding.kind.compare(used)
    blocks_disturbed = _disturbed_blocks(used)
    told = [*_told(why_not), *disturbed.sentence(blocks_disturbed, found.blocks, "block"), *_versions(used)]
    verdict, sentence = _stated(finding, found, _doubt(finding, rows, found, why_not))
    if verdict == NOT_ENOUGH and found.blocks >= LEAST_BLOCKS and found.pairing != UNPAIRED:
        found = dataclasses.replace(found, value=math.nan, low=math.nan, high=math.nan)  # of survivors
    told += _alike(found)
    return Outcome(
        name=finding.name,
        title=finding.title,
        verdict=verdict,
        sentence=" ".join([sentence, *told]),
        quantity=finding.formula,
        unit=finding.unit,
        estimate=number_or_none(found.value),
        low=number_or_none(found.low),
        high=number_or_none(found.high),
        blocks=found.blocks,
        blocks_disturbed=blocks_disturbed,
        runs=sum(map(len, used.values())),
        left_out=[{"record": record, "reason": reason} for record, reason in why_not.items()],
        records=[record for each in used.values() for record in each["record"]],
        figure=finding.figure if finding.figure in study.figures else None,
        table=finding.table if finding.table in study.tables else None,
        look_for=finding.look_for,
        blocks_worth=number_or_none(found.worth),
    )


def _rows(finding: Declared, planned: list[PlannedRun], runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of an arm, with what is compared."""
    names = [paths.record("", run.directory).removeprefix("/") for run in planned]
    rows = runs[runs["record"].isin(names)]
    along = finding.along.of(rows) if finding.along else 0.0
    return rows.assign(**{VALUE: finding.quantity.of(rows), ALONG: along})


def _columns(finding: Declared) -> set[str]:
    """The columns that the finding is made from."""
    return {*finding.quantity.columns, *(finding.along.columns if finding.along else ())}


def _left_out(finding: Declared, arms: dict[Any, pd.DataFrame]) -> dict[str, str]:
    """{record: reason} of the runs that enter no estimate. arms: their rows."""
    rows, columns = pd.concat(arms.values()), _columns(finding)
    reasons = {row["record"]: _reason(row, finding.kind.divides, columns) for _, row in rows.iterrows()}
    if not columns.isdisjoint(OF_POWER) and rows["power_source"].nunique() > 1:
        modelled = rows.loc[rows["power_source"] == MODELLED, "record"]
        reasons |= dict.fromkeys(modelled, "its power is modelled, that of others is measured")
    for _, block in rows[rows["record"].map(reasons).isna()].groupby("block"):
        why = None
        if len(block) < len(arms):
            why = "no run to compare it with in its block"
        elif block["session"].nunique() > 1:
            again = "attempt" in block and block["attempt"].max() > 1
            why = f"its block has {likeness.APART}" if again else INTERRUPTED
        reasons |= dict.fromkeys(block["record"], why)
    whole = [each[each["record"].map(reasons).isna()].set_index("block").sort_index() for each in arms.values()]
    unlike = likeness.explain_left_out_blocks(whole, columns=columns) if len(whole[0]) else {}
    reasons |= {record: unlike[block] for each in whole for block, record in each["record"].items() if block in unlike}
    return {record: reason for record, reason in reasons.items() if reason}


def _reason(row: pd.Series, positive: bool, columns: Collection[str]) -> str | None:
    """Why a run by itself enters no estimate. positive: whether only positive values do. columns: what is compared."""
    if failed := failed_runs.describe_failure(row.to_dict(), columns):
        return failed
    if row["overlapped"]:
        return overlap.OVERLAPPED
    if pd.notna(row["resumed_after_epoch"]):
        return "resumed from a checkpoint"
    if row["oversubscribed"]:
        return "oversubscribed: fewer cores than its ranks need"
    if pd.isna(row[VALUE]) or pd.isna(row[ALONG]):
        empty = [name for name in sorted(columns) if pd.isna(row[name])]
        return f"no {' and no '.join(empty)}" if empty else "no value"  # the latter: divided by 0
    return "no positive value" if positive and row[VALUE] <= 0 else None


def _doubt(finding: Declared, rows: dict[Any, pd.DataFrame], found: Estimate, why_not: dict[str, str]) -> str | None:
    """Why there is no verdict though there is an interval; None if there is one."""
    return _survivors(finding, rows, found) or _few(rows, found, why_not) or _ties(finding, found)


def _ties(finding: Declared, found: Estimate) -> str | None:
    """Why equal blocks of a quantity in steps leave its noise unknown; None if they do not.

    An interval without width would be certainty. By the sign test, `LEAST_EQUAL` equal blocks are significant.
    """
    in_steps = any(name in IN_STEPS or name.endswith("accuracy") for name in _columns(finding))
    if not in_steps or found.low != found.high or found.low == finding.kind.no_effect or found.blocks >= LEAST_EQUAL:
        return None
    return (
        f"all {found.blocks} blocks differ by the same; of {finding.quantity}, which has steps, a verdict without any "
        f"scatter needs {LEAST_EQUAL} blocks"
    )


def _few(rows: dict[Any, pd.DataFrame], found: Estimate, why_not: dict[str, str]) -> str | None:
    """Why the blocks that can be compared are too few of all: what is left of most would be a choice. None if not."""
    there = [set(each.loc[each["record"].map(why_not).ne(ADDED), "block"]) for each in rows.values()]
    blocks = len(set.intersection(*there))
    if found.blocks < LEAST_BLOCKS or found.blocks >= LEAST_SHARE * blocks:
        return None
    return f"only {found.blocks} of {blocks} blocks can be compared"


def _survivors(finding: Declared, rows: dict[Any, pd.DataFrame], found: Estimate) -> str | None:
    """Why the estimate is one of survivors, whose verdict would be another with those that failed; None if it is not.

    Of two arms, the failures of the worse one do not speak for it. Of a trend, or of a claim that arms do not differ,
    all arms must fail equally often.
    """
    named = {f"{finding.key} {value}": each for value, each in rows.items()}
    first, second = [*named][:2]
    quantity, best = finding.quantity, None
    more_is_better = None if quantity.minus or quantity.share_of else failed_runs.find_better_direction(quantity.column)
    if finding.kind.divides and finding.within is None and more_is_better and found.has_interval:
        rise = (found.value - finding.kind.no_effect) * (-1 if finding.kind.is_reduction else 1)
        best = first if rise * more_is_better > 0 else second
    return failed_runs.explain_survivors(named, best, _columns(finding))


def _stated(finding: Declared, found: Estimate, survivors: str | None) -> tuple[str, str]:
    """The verdict and the sentence with its numbers. survivors: of `_survivors`."""
    if survivors or found.blocks < LEAST_BLOCKS or not found.has_interval:
        why = survivors or f"{found.blocks} of at least {LEAST_BLOCKS} complete blocks"
        if not survivors and found.pairing == UNPAIRED:
            why = (
                f"by their clocks, the {found.blocks} blocks did not run one after the other, as batch jobs do with "
                "--jobs 1; if a clock was set meanwhile, run them again"
            )
        elif not survivors and math.isinf(found.low):
            why = f"{finding.along} cannot be shown to change along the values of {finding.key}"
        return NOT_ENOUGH, f"{finding.sentences[NOT_ENOUGH].format()} ({why})."
    case = _case(finding, found)
    sentence = finding.sentences[case].format(number=_number(finding, found, _is_turned(finding, found, case)))
    return case, sentence


def _is_turned(finding: Declared, found: Estimate, case: str) -> bool:
    """Whether the sentence has the estimate with the other sign.

    A clear fall is told by its size: "falls by 3 %", not "falls by -3 %". Where no difference is shown, a reduction is
    told as a change: "changes by -3 %".
    """
    if case == NO:
        return finding.kind.is_reduction
    return finding.kind.no_effect == 0 and found.high < 0


def _case(finding: Declared, found: Estimate) -> str:
    """`YES`, `NO` or `OPPOSITE`, by the place of the interval."""
    no_effect = finding.kind.no_effect
    if finding.within is None:
        side = _side(found.low, found.high, no_effect, 0)
        return NO if side == 0 else YES if side == finding.claim else OPPOSITE
    if _side(found.low, found.high, no_effect, finding.within):
        return OPPOSITE
    is_within = found.low >= no_effect - finding.within and found.high <= no_effect + finding.within
    return YES if is_within else NO


def _side(low: float, high: float, middle: float, margin: float) -> int:
    """1 for an interval above the middle by more than the margin, -1 for one below it, else 0."""
    return 1 if low > middle + margin else -1 if high < middle - margin else 0


def _number(finding: Declared, found: Estimate, turned: bool) -> str:
    """``12.3 % (95 % interval 11 to 14 %, 6 blocks)``."""
    numbers, limits = (found.value, found.low, found.high), finding.limits
    if turned:
        numbers = (0 - found.value, 0 - found.high, 0 - found.low)  # no -0.0
        limits = [0 - limit for limit in limits]
    middle, low, high = (significant(number, limits) for number in numbers)
    unit = finding.unit.split(" per ")[0]
    unit = "" if unit == "1" else f" {unit}"
    return f"{middle}{unit} (95 % interval {low} to {high}{unit}, {found.blocks} blocks)"


def _told(why_not: dict[str, str]) -> list[str]:
    """How many runs were left out and why, as a sentence; empty if none was."""
    if not why_not:
        return []
    kinds = [reason.partition(":")[0] for reason in why_not.values()]
    told = ", ".join(f"{counted(kinds.count(each), 'run')} ({each})" for each in dict.fromkeys(kinds))
    return [f"Left out: {told}."]


def _disturbed_blocks(used: dict[Any, pd.DataFrame]) -> int:
    """In how many blocks a run was disturbed by other use of its hosts."""
    rows = pd.concat(used.values())
    return rows.loc[rows["disturbed"].eq(True), "block"].nunique() if "disturbed" in rows else 0


def _versions(used: dict[Any, pd.DataFrame]) -> list[str]:
    """That the blocks are of several versions, each block of one: the estimate is a mean over them."""
    rows = pd.concat(used.values())
    told = [what for column, what in likeness.ALIKE.items() if _varies(rows, column)]
    return [f"Its blocks are of {' and '.join(told)}."] if told else []


def _alike(found: Estimate) -> list[str]:
    """That the interval counts the blocks as fewer, if it does."""
    told = alike_blocks(found.blocks, found.worth) if found.has_interval else ""
    return [f"In the interval, its {found.blocks} blocks are {told}."] if told else []


def _varies(rows: pd.DataFrame, column: str) -> bool:
    """Whether a column differs between blocks, of arms in which it may not differ by themselves."""
    keys = [key for key in likeness.FREED_BY[column] if key in rows]
    if column not in rows or rows[column].nunique() < 2:
        return False
    return bool(rows.groupby(keys, dropna=False)[column].nunique().gt(1).any()) if keys else True


def markdown(study: Study, machine: str, found: Iterable[Outcome]) -> str:
    """The page findings.md."""
    parts = [f"# Findings of study {study.name} on machine {machine}"]
    for each in found:
        parts.append(f"## {each.title}\n\n**{VERDICTS[each.verdict]}.** {each.sentence}")
        shown = [f"figure `{each.figure}`" if each.figure else "", f"table `{each.table}`" if each.table else ""]
        if told := " and ".join(filter(None, shown)):
            parts.append(f"See {told}." + (f" Look for: {each.look_for}" if each.look_for else ""))
        unit = "as a ratio" if each.unit == "1" else f"in {each.unit}"
        parts.append(f"Estimate: {each.quantity}, {unit}, from {counted(each.runs, 'run')}:")
        parts.append("\n".join(f"- {record}" for record in each.records) or "- none")
        if each.left_out:
            listed = "\n".join(f"- {one['record']}: {one['reason']}" for one in each.left_out)
            parts.append(f"Left out:\n\n{listed}")
    return "\n\n".join(parts) + "\n"
