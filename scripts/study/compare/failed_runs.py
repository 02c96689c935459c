"""Failed runs in comparisons: a failure is a result, and whoever leaves it out compares survivors.

A run that ended well counts only if something shows that it did its work: exit status 0 is no evidence.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from study.core import units
from study.core.wording import format_count
from study.machines.queues import LOST_JOB
from study.records.targets import MEASURES as TO_TARGET

LOST = "lost with a host or a batch job"  # what `is_failure_of_arm` is not
UNPROVEN = "unproven"  # a run that `keep_proven` drops; its column ``unproven`` says why, and what to do
IN_BLOCK = f"its block has an {UNPROVEN} run"
NOT_ITS_OWN = ("host_lost",)  # kinds of failure that say nothing about the run's arm
OF_FAILURES = ("block", "status", "failure_kind", "failure_phase", "failure_message", "target_reached")
LESS_IS_BETTER = {"s", "J", "J s", "W", "MB", None}  # units of quantities
NO_UNIT = {"epochs_to_target": -1, "gpu_utilisation_pct": 1, "flop_utilisation": 1}  # 1: more is better


def is_unproven(run: Mapping[Any, Any]) -> bool:
    """Whether a run ended well although nothing shows that it did its work. run: a row of the tidy table."""
    return isinstance(run.get("unproven"), str) and run["status"] == "ok"


def mark_unproven(runs: pd.DataFrame) -> pd.Series:
    """Which runs are unproven, see `is_unproven`."""
    if "unproven" not in runs:
        return pd.Series(False, runs.index)
    return runs["status"].eq("ok") & runs["unproven"].notna()


def keep_proven(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that enter estimates, means and models: they succeeded, and their work is shown."""
    return runs[runs["status"].eq("ok") & ~mark_unproven(runs)]


def describe_unproven(runs: pd.DataFrame) -> str | None:
    """``3 of 6 runs are unproven: why, and what to do``, which every answer without them says; None if none is."""
    unproven = runs[mark_unproven(runs)]
    if unproven.empty:
        return None
    are = "is" if len(unproven) == 1 else "are"
    reasons = "; ".join(unproven["unproven"].unique())
    return f"{len(unproven)} of {format_count(len(runs), 'run')} {are} {UNPROVEN}: {reasons}"


def describe_failure(run: Mapping[str, Any], columns: Collection[str] = ()) -> str | None:
    """How a run failed, for what is compared; None if it did not. columns: of the quantity that is compared."""
    if run["status"] != "ok":
        return f"failed: {run.get('failure_kind')} in {run.get('failure_phase')}"
    if not set(columns).isdisjoint(TO_TARGET) and run.get("target_reached") in (False,):
        return "missed the target"
    return None


def is_failure_of_arm(run: Mapping[str, Any]) -> bool:
    """Whether a failure may be due to the run's arm: not that of a host, or of a batch job that was lost."""
    message = run.get("failure_message")
    lost = isinstance(message, str) and LOST_JOB in message
    return run["status"] == "ok" or not (run.get("failure_kind") in NOT_ITS_OWN or lost)


def mark_failures_of_arm(runs: pd.DataFrame) -> pd.Series:
    """Which runs failed in a way that may be due to their arm or rank count, see `is_failure_of_arm`."""
    rows = runs[[name for name in ("status", "failure_kind", "failure_message") if name in runs]].to_dict("records")
    return pd.Series([run["status"] != "ok" and is_failure_of_arm(run) for run in rows], index=runs.index, dtype=bool)


def count_failures(*arms: pd.DataFrame) -> int:
    """Number of runs that failed by themselves: not with a host or a batch job that was lost."""
    return sum(int(mark_failures_of_arm(runs).sum()) for runs in arms)


def count_lost_runs(*arms: pd.DataFrame) -> int:
    """Number of runs that were lost with a host or a batch job."""
    return sum(int((runs["status"] != "ok").sum()) for runs in arms) - count_failures(*arms)


def describe_lost_runs(lost: int, runs: int) -> str | None:
    """A count in words: ``2 of 3 runs were lost with a host or a batch job``; None if none was."""
    if not lost:
        return None
    return f"{lost} of {format_count(runs, 'run')} {'was' if lost == 1 else 'were'} {LOST}"


def collect_failures(arms: Mapping[Any, pd.DataFrame], columns: Collection[str] = ()) -> dict[Any, list[str]]:
    """{arm: how its runs failed}, of those failures that may be due to the arm.

    What ended all arms of a block in the same way was not one of them.
    """
    failures = {
        arm: {
            run["block"]: how
            for run in runs[[name for name in OF_FAILURES if name in runs]].to_dict("records")
            if (how := describe_failure(run, columns)) is not None and is_failure_of_arm(run)
        }
        for arm, runs in arms.items()
    }
    common = set.intersection(*map(set, failures.values())) if len(failures) > 1 else set()
    hows = {block: {each[block] for each in failures.values()} for block in common}
    alike = {block for block, of_block in hows.items() if len(of_block) == 1 and "target" not in min(of_block)}
    return {arm: [how for block, how in each.items() if block not in alike] for arm, each in failures.items()}


def find_better_direction(column: str) -> int | None:
    """1 if more of a quantity is better, -1 if less is, None if neither is known. column: of runs.csv."""
    if column in NO_UNIT:
        return NO_UNIT[column]
    unit = units.find_unit(column)
    if unit in LESS_IS_BETTER and unit:
        return -1
    if unit and (unit.endswith("/s") or unit.endswith("/J")):
        return 1
    if column.endswith(("accuracy", "r2", "correlation")):
        return 1
    return -1 if column == "loss" or column.endswith("_loss") else None


def explain_survivors(
    arms: Mapping[Any, pd.DataFrame], best: Any | None = None, columns: Collection[str] = ()
) -> str | None:
    """Why a difference between arms is one of survivors only; None if failures do not speak against it.

    A failed run counts as the worst value: an arm that failed more often than another is not better than it. best: the
    arm that the values have as the better one; None where that cannot be said, and then all must fail equally often.
    columns: of the quantity that is compared.
    """
    if not any(map(len, arms.values())):
        return None
    failures = collect_failures(arms, columns)
    share = {arm: len(failures[arm]) / max(1, len(runs)) for arm, runs in arms.items()}
    if len(set(share.values())) < 2 or (best is not None and share[best] <= min(share.values())):
        return None
    words = [f"{arm} {describe_failures(failures[arm], len(runs))}" for arm, runs in arms.items() if failures[arm]]
    return ", ".join(words)


def describe_failures(hows: Sequence[str], runs: int) -> str:
    """The failures in words: ``failed in 5 of 8 runs (oom in train) and missed the target in 2 of 8 runs``.

    hows: of `describe_failure`.
    """
    parts = {how: how.partition(":") for how in dict.fromkeys(hows)}
    descriptions = []
    for outcome in dict.fromkeys(each[0] for each in parts.values()):
        number = sum(parts[how][0] == outcome for how in hows)
        details = ", ".join(rest.strip() for each, _, rest in parts.values() if each == outcome and rest)
        descriptions.append(f"{outcome} in {number} of {runs} runs" + (f" ({details})" if details else ""))
    return " and ".join(descriptions)
