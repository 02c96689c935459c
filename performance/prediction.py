"""Test the prediction in simulated worlds: how often its 90 % intervals hold, and whether its advice narrows them.

Prints a table and writes it to performance/prediction.csv; a few minutes. Everything is simulated. Worlds have the
mechanisms of config/prediction/mechanisms.yaml, or also one that it lacks.
"""

import argparse
import concurrent.futures
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from study.core import number_types
from study.prediction.model import Model, fit_model, predict
from study.prediction.recommend import narrowing
from study.prediction.worlds import ALIEN, World, world

OUTPUT = Path(__file__).resolve().parent / "prediction.csv"
QUANTITIES = ("mean_epoch_s", "runtime_s")
KNOWN = "mechanisms known"
ADVISED = 8  # times the largest measured count: the target of the advice


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    count = number_types.parse_count
    parser.add_argument("--worlds", type=count, default=200, help="with known mechanisms, and per kind without")
    parser.add_argument("--advised", type=count, default=40, help="worlds in which the advice is tried")
    parser.add_argument("--growth", type=float, help="instead of the configured one")
    arguments = parser.parse_args()
    tasks = [(seed, kind, arguments.growth) for kind in (None, *ALIEN) for seed in range(arguments.worlds)]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        rows = [row for part in pool.map(_coverage, *zip(*tasks, strict=True), chunksize=8) for row in part]
        better = list(pool.map(advice_is_better, range(arguments.advised), chunksize=2))
    table = summary(pd.DataFrame(rows))
    if better:
        table.loc[len(table)] = {
            "worlds": KNOWN,
            "of": "advice better than the median candidate",
            "share": np.mean(better),
        }
    print(table.to_string(index=False, float_format="%.3f"))
    if arguments.growth is None:
        table.to_csv(OUTPUT, index=False, float_format="%.3f")


def _coverage(seed: int, kind: str | None, growth: float | None) -> list[dict[str, object]]:
    simulated = world(seed, kind)
    return list(coverage(simulated, fit_model(simulated.observations, growth)))


def coverage(simulated: World, model: Model) -> Iterator[dict[str, object]]:
    """One row per target and quantity: whether the interval holds, its width, and the error. model: of the world."""
    found = predict(model, simulated.targets)
    for quantity in QUANTITIES:
        low, median, high = found.interval(quantity)
        for place, measured in enumerate(simulated.targets[quantity]):
            yield {
                "worlds": simulated.alien or KNOWN,
                "quantity": quantity,
                "ratio": simulated.targets["ranks"].iloc[place] / simulated.observations["ranks"].max(),
                "holds": low[place] <= measured <= high[place],
                "width": high[place] / low[place],
                "error": abs(median[place] / measured - 1),
            }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of worlds, and per ratio to the largest measured count: the share of intervals that hold."""
    found = []
    for kind, group in rows.groupby("worlds", sort=False):
        parts = [
            ("all", group),
            *((f"{ratio:g} x, {name}", part) for (ratio, name), part in group.groupby(["ratio", "quantity"])),
        ]
        found += [
            {
                "worlds": kind,
                "of": of,
                "share": part["holds"].mean(),
                "median_width": part["width"].median(),
                "median_error": part["error"].median(),
                "p90_error": part["error"].quantile(0.9),
            }
            for of, part in parts
        ]
    return pd.DataFrame(found)


def advice_is_better(seed: int) -> bool:
    """Whether a run at the advised count narrows the target's interval more than one at the median candidate."""
    simulated = world(10_000 + seed)
    largest = simulated.observations["ranks"].max()
    target = simulated.targets[simulated.targets["ranks"] == ADVISED * largest]
    nearer = simulated.targets[simulated.targets["ranks"] < ADVISED * largest]
    candidates = pd.concat([simulated.between, nearer], ignore_index=True)
    both = pd.concat([candidates, target], ignore_index=True)
    found = predict(fit_model(simulated.observations), both)
    expected = narrowing(found.draws["runtime_s"][:-1], found.means["runtime_s"][-1])
    widths = []
    for place in range(len(candidates)):
        more = pd.concat([simulated.observations, candidates.iloc[[place]]], ignore_index=True)
        low, _, high = predict(fit_model(more), target).interval("runtime_s")
        widths.append(np.log(high[0] / low[0]))
    return bool(widths[int(np.argmax(expected))] < np.median(widths))


if __name__ == "__main__":
    main()
