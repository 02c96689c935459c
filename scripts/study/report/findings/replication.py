"""Findings of a study that was run several times: whether their intervals hold, and whether they differ by more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from study.core.distributions import compute_f_tail
from study.core.statistics import ERROR_PER_SIDE, compute_t_quantile
from study.report.findings.declaration import load_finding
from study.report.findings.outcome import NOT_ENOUGH, VERDICTS, Outcome
from study.report.tables.declared import load_verb_table, make_verb_table
from study.report.tables.layout import Table

LEAST = 3  # replicates of a finding, for a statement about them
DIFFER = 0.05  # the probability below which replicates are said to differ


def make_table(study: str, times: Sequence[Sequence[Outcome]]) -> Table:
    """One row per finding.

    Args:
        study: its name.
        times: the outcomes of its findings, each time that it was run.
    """
    by_name: dict[str, list[Outcome]] = {}
    for outcomes in chain(*times):
        by_name.setdefault(outcomes.name, []).append(outcomes)
    columns = load_verb_table("replicates")["columns"]
    frame = pd.DataFrame([_make_row(name, each) for name, each in by_name.items()], columns=columns)
    has_estimate = frame["hold"].notna()
    holding, all_ = frame.loc[has_estimate, "hold"].sum(), frame.loc[has_estimate, "replicates"].sum()
    notes = [f"{holding:g} of {all_:g} intervals contain the pooled estimate of their finding"] if all_ else []
    return make_verb_table("replicates", frame, notes, study=study, times=len(times))


def _make_row(name: str, replicates: list[Outcome]) -> dict[str, Any]:
    verdicts = [each.verdict for each in replicates]
    counted = ", ".join(f"{number} {VERDICTS[each].lower()}" for each in VERDICTS if (number := verdicts.count(each)))
    used = [each for each in replicates if each.verdict != NOT_ENOUGH]
    row: dict[str, Any] = {"finding": name, "replicates": len(used), "verdicts": counted, "unit": replicates[0].unit}
    if len(used) < LEAST:
        return row | {"meaning": f"fewer than {LEAST} replicates have an estimate"}
    to, back = _choose_scale(name)
    ends = np.array([sorted(to(getattr(each, end)) for end in ("low", "high")) for each in used])
    estimates = np.array([to(each.estimate or 0.0) for each in used])
    freedom = np.array([(each.blocks_worth or each.blocks) - 1 for each in used], dtype=float)  # those of its interval
    errors = (ends[:, 1] - ends[:, 0]) / 2 / np.array([compute_t_quantile(each, ERROR_PER_SIDE) for each in freedom])
    pooled = float(estimates.mean())
    hold = int(((ends[:, 0] <= pooled) & (pooled <= ends[:, 1])).sum())
    q, p, i_squared = measure_heterogeneity(estimates, errors, freedom)
    values = sorted(each.estimate or 0.0 for each in used)
    return row | {
        "pooled": back(pooled), "lowest": values[0], "highest": values[-1], "hold": hold,
        "hold_share": hold / len(used), "q": q, "p_value": p, "i_squared": i_squared,
        "meaning": _explain_meaning(p, i_squared),
    }  # fmt: skip


def measure_heterogeneity(estimates: np.ndarray, errors: np.ndarray, freedom: np.ndarray) -> tuple[float, float, float]:
    """(Cochran's Q, the probability of so much or more if replicates do not differ, I^2 as a share).

    estimates, errors: of each replicate, with its standard error. freedom: degrees of freedom of that error. Q has the
    mean of the squared errors, not one weight each: with few blocks, a weight depends on chance. Q / (k - 1) then has
    an F distribution. Reference: J. P. T. Higgins and S. G. Thompson, Statistics in Medicine 21 (2002), 1539-1558.
    """
    number, within = len(estimates), float((errors**2).mean())
    if within == 0:
        return (math.inf, 0.0, 1.0) if np.ptp(estimates) else (0.0, 1.0, 0.0)
    q = float(((estimates - estimates.mean()) ** 2).sum()) / within
    p = compute_f_tail(number - 1, float(freedom.sum()), q / (number - 1))
    return q, p, max(0.0, 1 - (number - 1) / q) if q else 0.0


def _choose_scale(name: str) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """(to, from) the scale on which the intervals of a finding are symmetric."""
    kind = load_finding(name).kind
    if not kind.divides:
        return float, float
    if kind.is_reduction:  # in percent
        return (lambda each: math.log(1 - each / 100)), (lambda each: 100 * (1 - math.exp(each)))
    return math.log, math.exp


def _explain_meaning(p: float, i_squared: float) -> str:
    if p >= DIFFER:
        return "the replicates do not differ more than their intervals say"
    return (
        f"the replicates differ more than their intervals say: {100 * i_squared:.0f} % of their variance is between "
        "studies, such as another state of the machine"
    )
