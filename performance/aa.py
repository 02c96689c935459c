"""Test of the comparison of arms: a baseline against itself (A/A), and against a slow-down of 5 %.

Each comparison is ten blocks of two short runs, evaluated as table `tuning` is. Of 20 A/A comparisons, one interval is
expected to exclude 1, and at most three should. The slow-down is a sleep before each step. Every run is a row of
aa.csv; a command that was stopped goes on with the first missing block. --report evaluates the rows that exist.

It also says from which share of background load on a ratio moves by more than half of its interval. The runs have no
record of what else used the machine, so this is by their scatter and a model: a process of others that uses the share b
of the run's cores makes the run 1 / (1 - b) times as long. That is so if the run needs all of its cores. What others
take of caches and memory bandwidth comes on top; with idle cores it is less.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from direct import launch_run, make_files

from study.compare import arms
from study.core.files import write_aside
from study.core.statistics import ERROR_PER_SIDE, compute_t_quantile
from study.experiment import expansion, run_order
from study.experiment.parameters import PARAMETERS
from study.experiment.study import BASELINE, PlannedRun

HERE = Path(__file__).resolve().parent
RESULT = HERE / "aa.csv"
COMPARISONS, BLOCKS = 20, 10
MOST_EXCLUDED = 3  # of 20 intervals, of which each excludes the truth with 5 %: four or more with 1.6 %
AGAIN, SLOWED, DELAY = "again", "slowed", "step_delay_ms"
SLOWDOWN = 0.05
RECORD_COLUMNS = ("samples_per_rank", "steps_per_epoch", "time_per_step_s", "tcp_sent_mb_per_step", "test_loss")


def main() -> None:
    """Read the command line, run what is missing, and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=COMPARISONS, help="number of A/A comparisons")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="blocks of each comparison")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of each run")
    parser.add_argument("--result", type=Path, default=RESULT, help="the CSV file with one row per run")
    parser.add_argument("--report", action="store_true", help="evaluate the rows that exist; run nothing")
    arguments = parser.parse_args()
    if not arguments.report:
        run_missing(arguments.result, arguments.comparisons, arguments.blocks, arguments.ranks)
    if not arguments.result.exists():
        raise SystemExit(f"error: {arguments.result}: is not there; run this command without --report first")
    print_report(pd.read_csv(arguments.result))


def list_blocks(comparisons: int, blocks: int) -> list[tuple[str, int, int]]:
    """List (arm, comparison, block) of all blocks in their order; the slow-down is last, when its size is known."""
    blocks_in_order = [(AGAIN, number, block) for number in range(1, comparisons + 1) for block in range(1, blocks + 1)]
    return blocks_in_order + [(SLOWED, 1, block) for block in range(1, blocks + 1) if DELAY in PARAMETERS]


def run_missing(result: Path, comparisons: int, blocks: int, ranks: int) -> None:
    """Run the blocks that the file does not have yet; it is written again after each block."""
    rows = pd.read_csv(result).to_dict("records") if result.exists() else []
    finished = {(row["compared"], row["comparison"], row["block"]) for row in rows}
    todo = [each for each in list_blocks(comparisons, blocks) if each not in finished]
    if not todo:
        return
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_files(plan_block(AGAIN, 1, 0.0, ranks)[0], Path(folder))
        for number, (arm, comparison, block) in enumerate(todo):
            minutes_left = (time.monotonic() - begun) / number * (len(todo) - number) / 60 if number else None
            remaining = f", about {minutes_left:.0f} minutes left" if minutes_left is not None else ""
            print(f"{arm}, comparison {comparison}, block {block}: {number} of {len(todo)}{remaining}", file=sys.stderr)
            rows += run_block(arm, comparison, block, ranks, rows, Path(folder))
            with write_aside(result) as aside:
                pd.DataFrame(rows).to_csv(aside, index=False, float_format="%.6g")


def plan_block(arm: str, block: int, delay_ms: float, ranks: int) -> list[PlannedRun]:
    """Plan the runs of the baseline and the arm of a block."""
    switches = {"control": 1} if arm == AGAIN else {DELAY: delay_ms}
    study = {
        "description": "short runs",
        "datasets": {
            "nt3": {"source": "synthetic", "train_samples": 240, "test_samples": 60, "features": 120, "seed": 1}
        },
        "runs": [
            {"benchmark": "nt3", "scaling": "weak", "epochs": 20, "gpus": ranks, "loader": "npy",
             "repeats": block, "tuning": {arm: switches}}
        ],
        "tables": ["tuning"],
    }  # fmt: skip
    return [run for run in expansion.expand_study("aa", study, "aa.py").runs if run.repeat == block]


def run_block(
    arm: str, comparison: int, block: int, ranks: int, rows: list[dict[str, Any]], folder: Path
) -> Iterator[dict[str, Any]]:
    """Run the two arms of a block, in the order of the study; yields one row per run."""
    delay = compute_delay_ms(rows) if arm == SLOWED else 0.0
    runs = plan_block(arm, block, delay, ranks)
    for place in run_order.balance_arms(len(runs), block - 1):
        record = launch_run(runs[place], folder)
        columns = {**record["derived"], **(record["workload"] or {}), **(record["training"] or {}),
                 **(record["traffic"] or {}), "test_loss": record["quality"]["test_loss"]}  # fmt: skip
        yield {
            "compared": arm,
            "comparison": comparison,
            "block": block,
            "arm": runs[place].arms[0].name,
            "delay_ms": delay,
            "gpus": ranks,
            "epochs_per_rank": record["derived"]["epochs_per_rank"],
            **{name: columns.get(name) for name in RECORD_COLUMNS},
            "runtime_s": record["runtime_s"],
            "started_wall_ns": record["provenance"]["started_wall_ns"],
        }


def compute_delay_ms(rows: list[dict[str, Any]]) -> float:
    """Compute 5 % of the A/A runs' time per step, in milliseconds; at least 1 where the key takes whole numbers."""
    seconds = pd.Series([row["time_per_step_s"] for row in rows if row["compared"] == AGAIN]).mean()
    delay = 1000 * SLOWDOWN * float(seconds)
    whole = PARAMETERS[DELAY].kind.to_schema()["type"] == "integer"
    return max(1, round(delay)) if whole else round(delay, 3)


def compare_arms(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare the arms, one row per comparison, by the code that makes table `tuning`."""
    comparisons = []
    for (arm, number), group in rows.groupby(["compared", "comparison"], sort=False):
        switches = {"control": [1, 0]} if arm == AGAIN else {DELAY: [float(group["delay_ms"].iloc[0]), 0.0]}
        parts = {BASELINE: {}, arm: switches}
        runs = group.assign(
            machine="local", session="1", status="ok",  # a block that was interrupted is run again as a whole
            arms=[json.dumps([[each, "baseline", parts[each]]]) for each in group["arm"]],
        )  # fmt: skip
        ((one,),) = arms.compare_arms(runs).values()
        speed = one.speed
        comparisons.append(
            {"arm": arm, "comparison": number, "blocks": speed.blocks, "ratio": speed.value, "low": speed.low,
             "high": speed.high, "excludes_1": speed.low > 1 or speed.high < 1, "p_value": one.p,
             "detectable_pct": 100 * (one.detectable - 1)}
        )  # fmt: skip
    return pd.DataFrame(comparisons)


def compute_moving_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute from which background load on (percent) a ratio moves by more than half of its 95 % interval.

    One row per number of blocks; a column for how many of the blocks have one disturbed run, the others none.
    """
    again = rows[rows["compared"] == AGAIN].pivot_table("time_per_step_s", ["comparison", "block"], "arm")
    scatter = math.sqrt(np.log(again[AGAIN] / again[BASELINE]).groupby("comparison").var().mean())
    shares = []
    for blocks in (3, 6, 10):
        half = compute_t_quantile(blocks - 1, ERROR_PER_SIDE) * scatter / math.sqrt(blocks)
        parts = {"all blocks": blocks, "a third of them": blocks / 3, "one block": 1}
        moved = {name: 100 * (1 - math.exp(-half * blocks / number)) for name, number in parts.items()}
        shares.append({"blocks": blocks, "half of the interval": 100 * half, **moved})
    return pd.DataFrame(shares)


def print_report(rows: pd.DataFrame) -> None:
    """Print every comparison, how many A/A intervals exclude 1, and whether the slow-down is found."""
    table = compare_arms(rows)
    print(table.to_markdown(index=False, floatfmt=".4g"))
    again, slowed = (table[table["arm"] == arm] for arm in (AGAIN, SLOWED))
    print(
        f"A/A: {again['excludes_1'].sum()} of {len(again)} intervals exclude 1 (of {COMPARISONS}, at most "
        f"{MOST_EXCLUDED} should); median smallest detectable difference {again['detectable_pct'].median():.2g} %"
    )
    print("background load (%) that moves a ratio by half of its interval (%), if it disturbs one arm in")
    print(compute_moving_shares(rows).to_markdown(index=False, floatfmt=".2g"))
    if slowed.empty:
        why = "not run yet" if DELAY in PARAMETERS else f"skipped: this version has no grid key {DELAY}"
        print(f"slow-down of {SLOWDOWN:.0%}: {why}")
        return
    (one,) = slowed.to_dict("records")
    steps = rows[(rows["compared"] == SLOWED) & (rows["arm"] == BASELINE)]["time_per_step_s"].mean()
    injected = rows.loc[rows["compared"] == SLOWED, "delay_ms"].iloc[0] / 1000 / steps
    verdict = "found" if one["high"] < 1 else f"not found; the smallest detectable is {one['detectable_pct']:.2g} %"
    ratio = f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
    print(f"slow-down of {injected:.1%} of a step: ratio {ratio}, {verdict}")


if __name__ == "__main__":
    main()
