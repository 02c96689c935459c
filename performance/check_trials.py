"""Test of the rule of `make check`: tries on unchanged code and on code that is slowed down by a tenth.

Each try is a few short runs, compared with one reference that is accepted at the beginning. The slow-down is a sleep
after each step, injected by slowed/train.py. Every run is a row of check_trials.csv; a command that was stopped goes on
where it was. About 20 minutes on two idle cores. --report evaluates the rows that exist and starts no run.
"""

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from direct import launch_run, make_files

from study.compare.references import FALSE_ALARM
from study.core.files import write_aside
from study.core.statistics import LogSample, compare_geometric_means, summarize_ratios
from study.experiment import expansion
from study.experiment.study import PlannedRun
from study.launch import launch

HERE = Path(__file__).resolve().parent
RESULT = HERE / "check_trials.csv"
TRIES, REPEATS, REFERENCE_REPEATS = 20, 3, 6
SLOWDOWN = 0.1
LIMITS = (0.02, 0.03, 0.05)
FOUND = 0.9  # a slow-down is detectable if it is found in this share of the tries
REFERENCE, UNCHANGED, SLOWED = "reference", "unchanged", "slowed"
STUDY = {
    "description": "short runs on one rank",
    "datasets": {"nt3": {"source": "synthetic", "train_samples": 240, "test_samples": 60, "features": 120, "seed": 1}},
    "runs": [{"benchmark": "nt3", "scaling": "weak", "epochs": 10, "gpus": 1, "loader": "read_csv"}],
    "tables": ["scaling"],
}


def main() -> None:
    """Read the command line, run what is missing, and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=TRIES, help="of each kind")
    parser.add_argument("--result", type=Path, default=RESULT, help="the CSV file with one row per run")
    parser.add_argument("--report", action="store_true", help="evaluate only")
    arguments = parser.parse_args()
    if not arguments.report:
        run_missing(arguments.result, arguments.tries)
    if not arguments.result.exists():
        raise SystemExit(f"error: {arguments.result}: is not there; run this command without --report first")
    print_report(pd.read_csv(arguments.result))


def list_runs(tries: int) -> list[tuple[str, int, int]]:
    """List (arm, try, repeat) of all runs in their order: the arms alternate, and so does which one is first."""
    planned = [(REFERENCE, 1, repeat) for repeat in range(1, REFERENCE_REPEATS + 1)]
    for trial in range(1, tries + 1):
        for arm in (UNCHANGED, SLOWED)[:: 1 if trial % 2 else -1]:
            planned += [(arm, trial, repeat) for repeat in range(1, REPEATS + 1)]
    return planned


def run_missing(result: Path, tries: int) -> None:
    """Run what the file does not have yet; it is written again after each run."""
    rows = pd.read_csv(result).to_dict("records") if result.exists() else []
    finished = {(row["arm"], row["try"], row["repeat"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        run = _plan_run(Path(folder))
        for arm, trial, repeat in list_runs(tries):
            if (arm, trial, repeat) in finished:
                continue
            print(f"{arm}, try {trial} of {tries}, run {repeat}", file=sys.stderr, flush=True)
            seconds = _compute_sleep_s(rows) if arm == SLOWED else None
            measured = _run_repeat(run, Path(folder), repeat, seconds)
            rows.append({"arm": arm, "try": trial, "repeat": repeat, **measured, "sleep_s": seconds})
            with write_aside(result) as aside:
                pd.DataFrame(rows).to_csv(aside, index=False, float_format="%.6g")


def _plan_run(folder: Path) -> PlannedRun:
    """Plan the run, and make its files."""
    (run,) = expansion.expand_study("check_trials", STUDY, "check_trials.py").runs
    make_files(run, folder)
    return run


def _compute_sleep_s(rows: list[dict]) -> float:
    """Compute a tenth of the reference's time per step, in seconds."""
    return SLOWDOWN * float(np.mean([row["time_per_step_s"] for row in rows if row["arm"] == REFERENCE]))


def _run_repeat(run: PlannedRun, folder: Path, repeat: int, sleep_s: float | None) -> dict[str, float]:
    """Launch one repeat as the study does; returns its time per step and runtime, in seconds."""
    repeated = PlannedRun({**run.parameters, "repeat": repeat}, run.dataset)
    scripts = HERE / "slowed" if sleep_s else launch.SCRIPTS
    variables = {"SLOWED_S_PER_STEP": str(sleep_s)}
    with mock.patch.object(launch, "SCRIPTS", scripts), mock.patch.dict(os.environ, variables):
        record = launch_run(repeated, folder)
    return {
        "time_per_step_s": record["training"]["time_per_step_s"],
        "runtime_s": record["runtime_s"],
        "started_wall_ns": record["provenance"]["started_wall_ns"],
    }


def print_report(rows: pd.DataFrame) -> None:
    """Print detections, false alarms and the smallest detectable slow-down."""
    seconds, lines = rows["time_per_step_s"], []
    for unit, values in (("s", seconds),):
        tries = {arm: _summarize_tries(rows, values, arm) for arm in (REFERENCE, UNCHANGED, SLOWED)}
        if min(len(tries[REFERENCE]), len(tries[UNCHANGED]) - 1) < 1:
            raise SystemExit("error: too few runs to evaluate: a reference and two tries of unchanged code are needed")
        within = math.sqrt(np.mean([sample.deviation**2 for sample in tries[UNCHANGED]]))
        between = np.std([sample.mean for sample in tries[UNCHANGED]], ddof=1)
        print(f"{unit}: standard deviation {within:.2%} within tries, {between:.2%} of their means")
        for name, bases in (("the reference", tries[REFERENCE]), ("each unchanged try", tries[UNCHANGED])):
            lines += [{"unit": unit, "against": name, **_compute_rates(bases, tries, limit)} for limit in LIMITS]
    print(pd.DataFrame(lines).to_markdown(index=False, floatfmt=".3g"))


def _summarize_tries(rows: pd.DataFrame, values: pd.Series, arm: str) -> list[LogSample]:
    """Compute the mean and deviation of the logarithms of each whole try's repeats, for one arm."""
    groups = values[rows["arm"] == arm].groupby(rows["try"])
    return [summarize_ratios(group) for _, group in groups if len(group) >= REPEATS]


def _compute_rates(bases: list[LogSample], tries: dict[str, list[LogSample]], limit: float) -> dict[str, float | int]:
    """Compute the detections and false alarms in all comparisons of a try with another base than itself.

    ``detectable``: the change of an unchanged try's times with which it is called a regression in `FOUND` of the
    comparisons. To multiply the times moves the interval's end by the same factor.
    """
    unchanged, slowed = ([_compute_low_end(now, base) for base in bases for now in tries[arm] if now is not base]
                         for arm in (UNCHANGED, SLOWED))  # fmt: skip
    needed = [(1 + limit) / low - 1 for low in unchanged]
    return {
        "high": limit,
        "slowed": len(slowed),
        "detected": sum(low > 1 + limit for low in slowed),
        "unchanged": len(unchanged),
        "false_alarms": sum(low > 1 + limit for low in unchanged),
        "detectable": float(np.quantile(needed, FOUND)),
    }


def _compute_low_end(now: LogSample, base: LogSample) -> float:
    """Compute the low end of the ratio's interval, which is above the limit for a regression."""
    return compare_geometric_means(now, base, FALSE_ALARM)[1]


if __name__ == "__main__":
    main()
