"""The table of a check of performance references; made by `study check`, not by studies."""

import pandas as pd

from study.compare import reference_check as check
from study.compare.references import FALSE_ALARM, LEAST_REPEATS
from study.report.tables.layout import Table

SHOWN = ["quantity", "point", "unit", "reference", "reference_low", "reference_high", "measured", "measured_low",
         "measured_high", "repeats", "repeats_failed", "ratio", "ratio_low", "ratio_high", "low", "high",
         "verdict"]  # fmt: skip
NOTES = {
    check.FAILURES: "runs or loads failed, or missed the target, more often than in the reference. The values of the "
    "remaining ones are not compared and not accepted. Correct the cause of the failures, then run the failed ones "
    "again. Failures that are expected need may_fail in the study, or failed in the reference",
    check.UNCERTAIN: "the interval of the ratio includes a limit. Repeats that are added now do not change this "
    "verdict, because adding repeats until a verdict changes gives false verdicts. For another check, raise repeats "
    "and train all of them again, with --forcerun train",
    check.NOT_ENOUGH: f"a verdict needs {LEAST_REPEATS} repeats of a point: raise repeats in the study",
    check.NO_RUNS: "the point has no finished run or load: run the study",
    check.UNPROVEN: "their values are neither compared nor accepted",
    check.NO_VALUE: "runs or loads have finished, but their records do not have this quantity",
    check.NOT_POSITIVE: "the values of the finished runs or loads are 0 or negative, and have no ratio: check another "
    "quantity",
    check.NO_REFERENCE: "no accepted value: study check --accept accepts the present ones",
    check.OWN: "the accepted value comes from these runs: run them again, with --forcerun train",
    check.MIXED: "runs by different code are not repeats of each other: run the study with --forcerun train",
    check.UNLIKE_PACKAGES: "runs with different versions of the libraries are not repeats of each other: run the study "
    "with --forcerun train",
    check.UNLIKE: "runs with different data, settings of the environment, communication libraries, memory modes, "
    "options of batch jobs, hardware or operating systems are not repeats of each other: run the study with "
    "--forcerun train",
    check.AT_ONCE: "runs that were on one host at the same time took its cores from each other: give each its own "
    "node, then run the study with --forcerun train",
    check.UNLIKE_POWER: "power was measured in some repeats and modelled in others, so there is no mean: run the "
    "study with --forcerun train",
    check.NOT_CALIBRATED: "runs were made without a calibration. Only a study with relative_to times one, and only "
    "where ranks run on the launching host: train again with relative_to: calibration in this study's references, "
    "with --forcerun train",
    check.OTHER_CALIBRATION: "calibrations of different versions are not comparable: run the study with "
    "--forcerun train, then accept again",
    check.OTHER_HARDWARE: "the accepted value is of other processors, GPUs or numbers of cores: accept again on these "
    "hosts, or use relative_to: calibration",
    check.OTHER_UNIT: "relative_to was changed after the value was accepted: accept again",
}


def check_table(rows: pd.DataFrame, study: str, machine: str) -> Table:
    """The rows of `reference_check.compare_series` with what they mean. study, machine: whose runs they are."""
    judged = int(rows["ratio"].notna().sum()) if len(rows) else 0
    rows = rows if len(rows) else pd.DataFrame(columns=[*SHOWN, "records"])
    caption = (
        f"study {study} on machine {machine}: geometric mean of the latest repeats and the accepted value, with 90 % "
        f"intervals. The intervals of the {judged} ratios are widened, so that all of them together raise a false "
        f"alarm with a probability of at most about {100 * FALSE_ALARM:g} %; with few repeats it is higher. low, high: "
        "the allowed relative changes. regression: the whole interval of the ratio is outside these limits. failures: "
        "more repeats failed than in the reference."
    )
    counts = rows["verdict"].value_counts()
    notes = [
        f"{verdict} ({counts[verdict]}): {meaning}{_reasons(rows[rows['verdict'] == verdict])}"
        for verdict, meaning in NOTES.items()
        if verdict in counts
    ]
    notes += [f"left out: {why}" for why in rows["unproven"].dropna().unique()] if "unproven" in rows else []
    if "blocks_alike" in rows and (alike := list(dict.fromkeys(rows["blocks_alike"].dropna()))):
        notes.append(f"intervals that count their repeats as fewer: {'; '.join(alike)}; see blocks_alike")
    old = int((~rows["code_is_current"].astype(bool)).sum()) if len(rows) else 0
    if old:
        notes.append(f"{old} rows are of runs or loads by another version of the code than the present one")
    return Table(
        "performance_check",
        caption,
        rows,
        SHOWN,
        ("reference_low", "reference_high", "repeats_failed", "low", "high"),
        notes,
    )


def _reasons(rows: pd.DataFrame) -> str:
    """What the records say about missing values, by quantity."""
    reasons = rows[["quantity", "reason"]].dropna().drop_duplicates()
    return "".join(f"; {quantity}: {reason}" for quantity, reason in reasons.itertuples(index=False))
