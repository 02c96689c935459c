"""The table of a check of performance references; made by `study check`, not by studies."""

import pandas as pd

from study.compare.references import FALSE_ALARM, LEAST_REPEATS
from study.report.tables.declared import load_verb_table, make_verb_table
from study.report.tables.layout import Table


def describe_verdicts() -> dict[str, str]:
    """{verdict: what it means, and what to do}."""
    meanings: dict[str, str] = load_verb_table("performance_check")["meanings"]
    return {verdict: text.format(least_repeats=LEAST_REPEATS) for verdict, text in meanings.items()}


def check_table(rows: pd.DataFrame, study: str, machine: str) -> Table:
    """The rows of `reference_check.compare_series` with what they mean. study, machine: whose runs they are."""
    judged = int(rows["ratio"].notna().sum()) if len(rows) else 0
    rows = rows if len(rows) else pd.DataFrame(columns=[*load_verb_table("performance_check")["columns"], "records"])
    counts = rows["verdict"].value_counts()
    notes = [
        f"{verdict} ({counts[verdict]}): {meaning}{_reasons(rows[rows['verdict'] == verdict])}"
        for verdict, meaning in describe_verdicts().items()
        if verdict in counts
    ]
    notes += [f"left out: {why}" for why in rows["unproven"].dropna().unique()] if "unproven" in rows else []
    if "blocks_alike" in rows and (alike := list(dict.fromkeys(rows["blocks_alike"].dropna()))):
        notes.append(f"intervals that count their repeats as fewer: {'; '.join(alike)}; see blocks_alike")
    old = int((~rows["code_is_current"].astype(bool)).sum()) if len(rows) else 0
    if old:
        notes.append(f"{old} rows are of runs or loads by another version of the code than the present one")
    return make_verb_table(
        "performance_check", rows, notes, study=study, machine=machine, judged=judged,
        false_alarm_pct=100 * FALSE_ALARM,
    )  # fmt: skip


def _reasons(rows: pd.DataFrame) -> str:
    """What the records say about missing values, by quantity."""
    reasons = rows[["quantity", "reason"]].dropna().drop_duplicates()
    return "".join(f"; {quantity}: {reason}" for quantity, reason in reasons.itertuples(index=False))
