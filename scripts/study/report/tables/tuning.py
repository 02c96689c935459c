"""Our own table: which setting is worth changing."""

from typing import Any

import pandas as pd

from study.compare import arms, estimates
from study.core.statistics import summarize
from study.experiment.parameters import is_observed
from study.experiment.study import PlannedRun
from study.records.names import join_records
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.layout import text
from study.report.tables.summary import IDENTITY, SINGLE_STEPS, counted_kinds, steady


def is_compared(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings and is a baseline or an arm."""
    has_arms = bool(run.arms) if isinstance(run, PlannedRun) else isinstance(run.get("arms"), str)
    return has_arms and is_observed(run, None)


@table_rows("tuning", uses=is_compared)
def tuning(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per arm and baseline; the other keys of a row are the baseline's."""
    rows = [row(compared) for group in arms.compare(runs).values() for compared in group]
    frame = pd.DataFrame(rows, columns=None if rows else [*load_declarations()["tuning"]["columns"], "records"])
    return Rows(frame)


def row(compared: arms.Compared) -> dict[str, Any]:
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
        "throughput_ratio": speed.value,
        "throughput_ratio_low": speed.low,
        "throughput_ratio_high": speed.high,
        "p_value": compared.p,
        "p_holm": compared.p_holm,
        "detectable_pct": 100 * (compared.detectable - 1),
        "verdict": compared.verdict,
        "test_loss_difference": loss.value,
        "test_loss_difference_low": loss.low,
        "test_loss_difference_high": loss.high,
        "sent_ratio": compared.sent,
        "time_per_step_s": _mean(own, "time_per_step_s"),
        "baseline_time_per_step_s": _mean(steady(compared.baseline), "time_per_step_s"),
        **{name: _mean(own, name) for name in SINGLE_STEPS},
        "pairing": speed.pairing,
        "repeats_ok": int((compared.runs["status"] == "ok").sum()),
        "repeats_failed": len(failed),
        "baseline_failed": int((compared.baseline["status"] != "ok").sum()),
        "blocks_interrupted": compared.interrupted,
        "blocks_unlike": speed.unlike,
        "blocks_alike": estimates.describe_fewer_blocks({"throughput_ratio": speed}),
        "failures": counted_kinds(failed["failure_kind"]),
        "oversubscribed": bool(both["oversubscribed"].any()),
        "code_is_current": bool(both["code_is_current"].all()),
        "records": join_records(both["record"]),
    }


def _mean(runs: pd.DataFrame, column: str) -> float:
    return summarize(runs.loc[runs["status"] == "ok", column]).mean
