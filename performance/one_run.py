"""False alarms of common rules that compare single runs, on runs that differ in nothing, beside this project's rule.

Reads the A/A comparisons in aa.csv (see aa.py; starts nothing), prints a table and writes one_run.csv. A rule that
takes one run per arm is applied to every block. `slowed` is how often a rule notices the slow-down of about 5 %, in
`of_slowed` decisions.

--runs FILE does the same for the blocks of a finished study (its runs.csv): each block against the one before, point by
point, and prints the table. These runs differ in nothing but their time. A single epoch is read from each history.csv;
runs keep no times of single iterations.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from aa import AGAIN, RESULT, SLOWED, compare_arms
from scipy.stats import t

from study.core.errors import StudyError, exit_with_message
from study.experiment.parameters import PARAMETERS
from study.records.tidy import read_runs

OUTPUT = RESULT.with_name("one_run.csv")
TIME = "time_per_step_s"
LIMIT = 0.95  # of the baseline's throughput
FEW = 3


def main() -> None:
    """Read the command line, evaluate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULT, help="the runs; by default performance/aa.csv")
    parser.add_argument("--runs", type=Path, help="runs.csv of a study; its blocks are compared instead")
    arguments = parser.parse_args()
    if arguments.runs:
        print(evaluate_study(arguments.runs).to_string(index=False, float_format="%.3f"))
        return
    rules = evaluate_rules(pd.read_csv(arguments.result))
    print(rules.to_string(index=False, float_format="%.3f"))
    rules.to_csv(OUTPUT, index=False, float_format="%.3f")


def evaluate_rules(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluate the rules, one row each: decisions, share of false alarms on equal arms, of alarms on the slowed one."""
    blocks = compute_block_ratios(rows)
    rules: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        "one run below 95 % of the baseline": lambda part: part["ratio"] < LIMIT,
        "one run that differs by 5 % either way": lambda part: (part["ratio"] - 1).abs() > 1 - LIMIT,
        "one run slower than the baseline": lambda part: part["ratio"] < 1,
        f"mean of {FEW} runs below 95 %": lambda part: _compute_means(part) < LIMIT,
    }
    rows_by_rule = [{"rule": name, **_compute_shares({arm: rule(part) for arm, part in blocks.groupby("compared")})}
             for name, rule in rules.items()]  # fmt: skip
    ours = compare_arms(rows)
    alarms = {arm: part["excludes_1"] for arm, part in ours.groupby("arm")}
    rows_by_rule.append(
        {"rule": f"{int(ours['blocks'].max())} paired blocks, interval excludes 1", **_compute_shares(alarms)}
    )
    return pd.DataFrame(rows_by_rule)


def evaluate_study(path: Path) -> pd.DataFrame:
    """Evaluate the rules on equal runs of successive blocks of a study: decisions and share of false alarms."""
    runs = read_runs(path)
    runs = runs[(runs["status"] == "ok") & runs["time_per_epoch_s"].notna()].copy()
    keys = [name for name in (*PARAMETERS, "dataset") if name in runs and name != "repeat"]
    root = _find_results_folder(path, runs["record"])
    runs["point"] = runs.groupby(keys, dropna=False, sort=False).ngroup()
    runs["last_epoch_s"] = [_read_last_epoch_s(root / record) for record in runs["record"]]
    pairs = runs.merge(runs.assign(repeat=runs["repeat"] + 1), on=["point", "repeat"], suffixes=("", "_before"))
    if pairs.empty:
        raise StudyError(f"{path}: no point has two successive repeats")
    speed = {name: pairs[f"{name}_before"] / pairs[name] for name in ("time_per_epoch_s", "last_epoch_s")}
    one = speed["time_per_epoch_s"]
    alarms = {
        "one run below 95 % of the baseline": one < LIMIT,
        "one run that differs by 5 % either way": (one - 1).abs() > 1 - LIMIT,
        "one run slower than the baseline": one < 1,
        "one epoch of one run below 95 %": speed["last_epoch_s"].dropna() < LIMIT,
        "all points of two blocks, interval excludes 1": pairs.assign(log=np.log(one))
        .groupby("repeat")["log"]
        .apply(_is_zero_excluded),
    }
    rows = [{"rule": name, "decisions": len(each), "false_alarms": each.mean()} for name, each in alarms.items()]
    return pd.DataFrame(rows)


def _find_results_folder(path: Path, records: pd.Series) -> Path:
    """Find the folder above ``path`` to which the records are relative; that of ``path`` if none of them exists."""
    folders = path.resolve().parents
    return next(
        (each for each in folders if any((each / record).parent.is_dir() for record in records[:1])), folders[0]
    )


def _read_last_epoch_s(record: Path) -> float:
    """Read the time (s) of a run's last epoch from its history.csv; NaN without one."""
    path = record.with_name("history.csv")
    return float(pd.read_csv(path)["time_s"].iloc[-1]) if path.exists() else float("nan")


def _is_zero_excluded(logs: pd.Series) -> bool:
    """True if the 95 % interval of the mean excludes 0, by Student's t; False with fewer than three."""
    if len(logs) < FEW:
        return False
    half = float(t.ppf(0.975, len(logs) - 1)) * logs.std(ddof=1) / len(logs) ** 0.5
    return bool(abs(logs.mean()) > half)


def compute_block_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute one ratio per block: throughput of the compared arm over that of the baseline."""
    keys = ["compared", "comparison", "block"]
    times = rows.assign(arm=rows["arm"].where(rows["arm"] == "baseline", "other"))
    wide = times.pivot_table(TIME, keys, "arm")
    return (wide["baseline"] / wide["other"]).rename("ratio").reset_index()


def _compute_means(part: pd.DataFrame) -> pd.Series:
    """Compute the means of `FEW` successive blocks, of each comparison."""
    group = (part["block"] - 1) // FEW
    group_ratios = part.groupby(["comparison", group])["ratio"]
    return group_ratios.mean()[group_ratios.count() == FEW]


def _compute_shares(alarms: dict[str, pd.Series]) -> dict[str, float]:
    """Compute the share of alarms among equal arms and about the slowed one."""
    equal, slowed = alarms.get(AGAIN, pd.Series(dtype=bool)), alarms.get(SLOWED, pd.Series(dtype=bool))
    return {"decisions": len(equal), "false_alarms": equal.mean(), "of_slowed": len(slowed), "slowed": slowed.mean()}


if __name__ == "__main__":
    exit_with_message(main)
