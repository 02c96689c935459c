"""What one run hides: how often common rules raise a false alarm on runs that differ in nothing, beside this project's.

Reads the A/A comparisons in aa.csv (see aa.py; starts nothing), prints a table and writes one_run.csv. A rule that
takes one run per arm is applied to every block. `slowed` is how often a rule notices the slow-down of about 5 %, in
`of_slowed` decisions.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from aa import AGAIN, RESULT, SLOWED, compared

OUTPUT = RESULT.with_name("one_run.csv")
TIME = "time_per_step_s"
LIMIT = 0.95  # of the baseline's throughput
FEW = 3


def main() -> None:
    """Read the command line, evaluate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULT, help="the runs; by default performance/aa.csv")
    arguments = parser.parse_args()
    found = table(pd.read_csv(arguments.result))
    print(found.to_string(index=False, float_format="%.3f"))
    found.to_csv(OUTPUT, index=False, float_format="%.3f")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per rule: decisions, the share of false alarms among equal arms, and of alarms about the slowed one."""
    blocks = ratios(rows)
    rules: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        "one run below 95 % of the baseline": lambda part: part["ratio"] < LIMIT,
        "one run that differs by 5 % either way": lambda part: (part["ratio"] - 1).abs() > 1 - LIMIT,
        "one run slower than the baseline": lambda part: part["ratio"] < 1,
        f"mean of {FEW} runs below 95 %": lambda part: _means(part) < LIMIT,
    }
    found = [{"rule": name, **_shares({arm: rule(part) for arm, part in blocks.groupby("compared")})}
             for name, rule in rules.items()]  # fmt: skip
    ours = compared(rows)
    alarms = {arm: part["excludes_1"] for arm, part in ours.groupby("arm")}
    found.append({"rule": f"{int(ours['blocks'].max())} paired blocks, interval excludes 1", **_shares(alarms)})
    return pd.DataFrame(found)


def ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per block: the throughput of the compared arm over that of the baseline beside it."""
    keys = ["compared", "comparison", "block"]
    times = rows.assign(arm=rows["arm"].where(rows["arm"] == "baseline", "other"))
    wide = times.pivot_table(TIME, keys, "arm")
    return (wide["baseline"] / wide["other"]).rename("ratio").reset_index()


def _means(part: pd.DataFrame) -> pd.Series:
    """Means of `FEW` blocks after one another, of each comparison."""
    group = (part["block"] - 1) // FEW
    of = part.groupby(["comparison", group])["ratio"]
    return of.mean()[of.count() == FEW]


def _shares(alarms: dict[str, pd.Series]) -> dict[str, float]:
    equal, slowed = alarms.get(AGAIN, pd.Series(dtype=bool)), alarms.get(SLOWED, pd.Series(dtype=bool))
    return {"decisions": len(equal), "false_alarms": equal.mean(), "of_slowed": len(slowed), "slowed": slowed.mean()}


if __name__ == "__main__":
    main()
