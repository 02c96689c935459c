"""Tables of arms: each against its baseline, and the tuner's answer."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from study.compare import arms, estimates, failed_runs, tuner
from study.compare.arms import FASTER, SLOWER, ComparedArm
from study.compare.estimates import UNPAIRED, Estimate, describe_fewer_blocks
from study.compare.failed_runs import LOST
from study.compare.tuner import Answer
from study.core.statistics import summarize
from study.core.wording import format_count, format_significant
from study.experiment.parameters import is_observed
from study.experiment.study import PlannedRun, Study
from study.records.names import join_records
from study.report.tables.declared import Rows, load_declarations, load_verb_table, make_verb_table, table_rows
from study.report.tables.layout import Table, text
from study.report.tables.summary import IDENTITY, SINGLE_STEPS, count_kinds, notes, steady


def is_compared(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings and is a baseline or an arm."""
    has_arms = bool(run.arms) if isinstance(run, PlannedRun) else isinstance(run.get("arms"), str)
    return has_arms and is_observed(run, None)


@table_rows("tuning", uses=is_compared)
def tuning(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per arm and baseline; the other keys of a row are the baseline's."""
    rows = [make_row(compared) for group in arms.compare_arms(runs).values() for compared in group]
    frame = pd.DataFrame(rows, columns=None if rows else [*load_declarations()["tuning"]["columns"], "records"])
    return Rows(frame)


def make_row(compared: arms.ComparedArm) -> dict[str, Any]:
    """The row of an arm."""
    first = compared.baseline.iloc[0] if len(compared.baseline) else compared.runs.iloc[0]
    both = pd.concat([compared.runs, compared.baseline])
    failed = compared.runs[compared.runs["status"] != "ok"]
    speed, loss, own = compared.speed, compared.loss, steady(compared.runs)
    return {
        **{name: first[name] for name in IDENTITY},
        "arm": compared.arm,
        "switch": ", ".join(compared.switches),
        "value": ", ".join(text(value) for value, _ in compared.switches.values()),
        "baseline_value": ", ".join(text(value) for _, value in compared.switches.values()),
        "blocks": speed.blocks,
        **speed.to_columns("throughput_ratio"),
        "p_value": compared.p,
        "p_holm": compared.p_holm,
        "detectable_pct": 100 * (compared.detectable - 1),
        "verdict": compared.verdict,
        **loss.to_columns("test_loss_difference"),
        "sent_ratio": compared.sent,
        "time_per_step_s": _compute_mean(own, "time_per_step_s"),
        "baseline_time_per_step_s": _compute_mean(steady(compared.baseline), "time_per_step_s"),
        **{name: _compute_mean(own, name) for name in SINGLE_STEPS},
        "pairing": speed.pairing,
        "repeats_ok": len(failed_runs.keep_proven(compared.runs)),
        "repeats_failed": len(failed),
        "baseline_failed": int((compared.baseline["status"] != "ok").sum()),
        "blocks_interrupted": compared.interrupted,
        "blocks_unlike": speed.unlike,
        "blocks_alike": estimates.describe_fewer_blocks({"throughput_ratio": speed}),
        "failures": count_kinds(failed["failure_kind"]),
        "oversubscribed": bool(both["oversubscribed"].any()),
        "code_is_current": bool(both["code_is_current"].all()),
        "records": join_records(both["record"]),
    }


def _compute_mean(runs: pd.DataFrame, column: str) -> float:
    return summarize(failed_runs.keep_proven(runs)[column]).mean


def make_tuner_table(study: Study, found: Iterable[Answer]) -> Table:
    """One row per baseline of the study."""
    frame = pd.DataFrame([_make_answer_row(answer) for answer in found])
    remarks = [note for note in notes(frame) if "blocks_alike" in note]
    return make_verb_table("tuner", frame, remarks, IDENTITY, study=study.name)


def _make_answer_row(answer: Answer) -> dict[str, Any]:
    pick, held_out = answer.pick, answer.confirmed
    row: dict[str, Any] = {
        **{name: value for name, value in answer.point.items() if name in IDENTITY},
        "arms": answer.planned,
        "screening_blocks": _format_range(answer.screening),
        "pick": pick.arm if pick else "the defaults" if answer.screened else None,
        "switch": ", ".join(pick.switches) if pick else None,
        "value": ", ".join(text(value) for value, _ in pick.switches.values()) if pick else None,
        "held_out_blocks": _format_range(answer.held_out),
        "verdict": answer.verdict,
    }
    numbers = {
        "blocks": held_out.speed.blocks,
        "repeats_failed": int((held_out.runs["status"] != "ok").sum()),
        **held_out.speed.to_columns("throughput_ratio"),
        "p_value": held_out.p,
        "detectable_pct": 100 * (held_out.detectable - 1),
        **held_out.loss.to_columns("test_loss_difference"),
        "blocks_alike": describe_fewer_blocks({"throughput_ratio": held_out.speed}),
        "records": join_records([*held_out.runs["record"], *held_out.baseline["record"]]),
    } if held_out else dict.fromkeys(load_verb_table("tuner")["columns"][8:18], math.nan)  # fmt: skip
    return row | numbers


def _format_range(blocks: tuple[int, ...]) -> str:
    return f"{blocks[0]} to {blocks[-1]}" if blocks else "none"


def describe_answer(answer: Answer, found: Sequence[Answer] = ()) -> list[str]:
    """The answer for one baseline, in words. found: all answers of the study, from which the baseline is told apart."""
    lines = [f"{_describe_place(answer, found)}: {_describe_verdict(answer)}"]
    lines += [f"{arm} was not picked: {why}" for arm, why in answer.left_out.items()]
    if answer.confirmed and answer.verdict == tuner.TURN and _excludes_zero(answer.confirmed.loss):
        lines.append(f"the test loss of {answer.confirmed.arm} differs by {_format_loss(answer.confirmed.loss)}")
    if answer.confirmed and answer.verdict != tuner.NOT_ENOUGH and (why := tuner.describe_left_out(answer.confirmed)):
        lines.append(f"held-out blocks{why}")
    if answer.pick and answer.baseline_failed:
        lines.append(f"{format_count(answer.baseline_failed, 'run')} of the baseline failed in the held-out blocks")
    if answer.lost:
        was = "was" if answer.lost == 1 else "were"
        lines.append(f"{format_count(answer.lost, 'run')} of the held-out blocks {was} {LOST}")
    if answer.confirmed and answer.confirmed.verdict and _is_crowded(answer.confirmed):
        lines.append("in some of these runs ranks had fewer cores than they should (oversubscribed)")
    if answer.added:
        lines.append(f"{format_count(answer.added, 'run')} added after this verdict was seen: left out")
    for control in answer.controls:
        if control.speed.low > 1 or control.speed.high < 1:
            lines.append(
                f"the baseline differs from itself ({control.arm}) by {_format_change(control.speed)}; one in twenty "
                "such intervals does so by chance. A gain must be larger than that"
            )
    return lines


def _describe_place(answer: Answer, found: Sequence[Answer]) -> str:
    """The baseline: ``nt3 on 2 ranks``, and the keys in which others on as many ranks differ from it."""
    point, ranks = answer.point, answer.point["gpus"]
    alike = [other.point for other in found if all(other.point[key] == point[key] for key in ("benchmark", "gpus"))]
    differing = [key for key in point if key in IDENTITY and any(other[key] != point[key] for other in alike)]
    place = f"{point['benchmark']} on {ranks} rank{'' if ranks == 1 else 's'}"
    return ", ".join([place, *(f"{key} {text(point[key])}" for key in differing)])


def _describe_verdict(answer: Answer) -> str:
    pick, held_out = answer.pick, answer.confirmed
    if answer.missing:
        stage, number = "held-out" if answer.pick else "screening", len(answer.missing)
        picked = f"{answer.pick.arm} is picked, " if answer.pick else ""
        return f"{tuner.NOT_ENOUGH}: {picked}{format_count(number, 'run')} of the {stage} blocks without a record yet"
    if not answer.screened:
        return f"{tuner.NOT_ENOUGH}: no arm has the screening blocks that it needs"
    if pick is None:
        return f"{tuner.KEEP}: none of {len(answer.screened)} arms was faster in the screening blocks"
    keys = ", ".join(f"{key} {text(value)} instead of {text(other)}" for key, (value, other) in pick.switches.items())
    if held_out is not None and answer.failed:
        runs = format_count(len(held_out.runs), "run")
        return f"{tuner.KEEP}: {answer.failed} of {runs} of {pick.arm} ({keys}) failed in the held-out blocks"
    if held_out is not None and held_out.speed.pairing == UNPAIRED:
        why = "its held-out blocks did not run one after the other"
        return f"{tuner.NOT_ENOUGH}: {pick.arm} ({keys}) is picked; {why}"
    if held_out is not None and held_out.takes_longer and held_out.whole is not None:
        return (
            f"{tuner.KEEP}: {pick.arm} ({keys}) has {_format_change(held_out.speed)} in steady throughput, but its "
            f"whole runs take {_format_change(held_out.whole)} longer: only training of many more epochs could "
            "gain from it"
        )
    if held_out is not None and held_out.survivors:
        return f"{tuner.NOT_ENOUGH}: {pick.arm} ({keys}) is picked; in the held-out blocks {held_out.survivors}"
    if held_out is None or held_out.verdict is None:
        why = tuner.describe_left_out(held_out) if held_out else ""
        return (
            f"{tuner.NOT_ENOUGH}: {pick.arm} ({keys}) is picked; there are too few held-out blocks to confirm it{why}"
        )
    blocks = f"{held_out.speed.blocks} held-out blocks"
    if answer.verdict == tuner.TURN:
        p = format_significant(held_out.p, (arms.FAMILY_ERROR,), 2)
        return f"{tuner.TURN} {pick.arm} ({keys}): steady throughput {_format_change(held_out.speed)}, {blocks}, p {p}"
    has = f"has {_format_change(held_out.speed)} in {blocks}"
    if held_out.verdict == FASTER:
        return f"{tuner.KEEP}: {pick.arm} ({keys}) {has}, but its test loss is higher by {_format_loss(held_out.loss)}"
    if held_out.verdict == SLOWER:
        return f"{tuner.KEEP}: {pick.arm} ({keys}), the fastest arm in the screening blocks, {has}"
    if held_out.p_holm < arms.FAMILY_ERROR:
        return (
            f"{tuner.KEEP}, no difference shown: {pick.arm} ({keys}) {has}, but the baseline differs from itself by up "
            f"to {100 * (held_out.artefact - 1):.2g} %"
        )
    return (
        f"{tuner.KEEP}, no difference shown: {pick.arm} ({keys}), the fastest of {len(answer.screened)} arms in the "
        f"screening blocks, {has}; a gain below {100 * (held_out.detectable - 1):.2g} % would probably not have been "
        "found"
    )


def _format_change(ratio: Estimate) -> str:
    """``+5.2 % (95 % interval +3.1 to +7.4)``."""
    changes = (100 * (each - 1) for each in ratio.numbers)
    value, low, high = (format_significant(each, (0,), sign="+") for each in changes)
    return f"{value} % (95 % interval {low} to {high} %)"


def _format_loss(difference: Estimate) -> str:
    """``0.16 (95 % interval 0.12 to 0.2)``."""
    middle, low, high = (text(each, limits=(0,)) for each in difference.numbers)
    return f"{middle} (95 % interval {low} to {high})"


def _is_crowded(arm: ComparedArm) -> bool:
    return any(bool(runs["oversubscribed"].any()) for runs in (arm.runs, arm.baseline))


def _excludes_zero(difference: Estimate) -> bool:
    return difference.low > 0 or difference.high < 0
