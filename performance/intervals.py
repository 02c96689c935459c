"""Coverage of the findings' 95 % intervals: every kind of finding, by its own code, in simulated studies.

Of each kind of finding, noise and number of blocks, many studies are simulated whose truth is known, and it is counted
how many intervals contain it: 93 to 97 % should. Where they do not, the column `exception` says why. Prints a table and
writes it to performance/intervals.csv; four minutes. All runs are simulated. The size of a drift, and how much a run
resembles the one before, are those of the A/A runs in performance/aa.csv.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study.compare import estimates
from study.core import number_types
from study.core.statistics import ERROR_PER_SIDE
from study.experiment import run_order

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "intervals.csv"
BLOCKS = range(3, 11)
SEED = 2019
EXPECTED = (0.93, 0.97)
POINTS = 6  # of the studies; the finding's arms are the first and the last of them, and one between
SCATTER = 0.1  # standard deviation of a run's time, relative to its mean
SKEWED = 0.5  # standard deviation of the logarithm of a skewed one: its mean is 13 % above its median
DRIFT = 0.06  # standard deviation of a machine's speed, that changes slowly; of these A/A runs 0.04 to 0.08
RESEMBLING = (
    0.87  # correlation of a run with the one before, as over all 400 A/A runs in aa.csv; that within ten blocks is less
)
FASTEST, SLOWED, BUSY_RUNS, BUSY_SHARE = 0.02, 1.3, 4, 0.25  # of a machine that is busy now and then

Simulated = tuple[float, float, float]  # estimate and interval
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class Noise:
    """A kind of noise.

    Args:
        name: what it is.
        draw: from (generator, arms, blocks) to factors with the mean 1, shape (arms, blocks).
        exception: why its intervals may hold another share than `EXPECTED`.
    """

    name: str
    draw: Draw
    exception: str = ""


def order_to_and_fro(points: int, block: int) -> list[int]:
    """Order points as studies ran before the order was balanced: every second block in reverse."""
    return list(range(points))[:: 1 if block % 2 == 0 else -1]


def vary_in_time(
    steady: Callable[[np.random.Generator, int], np.ndarray],
    order: Callable[[int, int], list[int]] = run_order.balance_arms,
) -> Draw:
    """Make noise that changes over a study's time: from factors of runs in order to those of arms in blocks."""

    def draw(random: np.random.Generator, arms: int, blocks: int) -> np.ndarray:
        factors = steady(random, POINTS * blocks).reshape(blocks, POINTS)
        placed = np.empty((POINTS, blocks))
        for block in range(blocks):
            placed[order(POINTS, block), block] = factors[block]
        return placed[np.linspace(0, POINTS - 1, arms).astype(int)]

    return draw


def draw_normal(random: np.random.Generator, arms: int, blocks: int) -> np.ndarray:
    """Draw independent normal noise, (arms, blocks)."""
    return 1 + SCATTER * random.standard_normal((arms, blocks))


def draw_lognormal(random: np.random.Generator, arms: int, blocks: int) -> np.ndarray:
    """Draw independent and skewed noise, (arms, blocks)."""
    return np.exp(SKEWED * random.standard_normal((arms, blocks)) - SKEWED**2 / 2)


def draw_outliers(random: np.random.Generator, arms: int, blocks: int) -> np.ndarray:
    """Draw little noise in which one run in ten takes a third longer, (arms, blocks)."""
    slow = random.random((arms, blocks)) < 0.1
    return (1 + FASTEST * random.standard_normal((arms, blocks)) + slow / 3) / (1 + 0.1 / 3)


def draw_autoregressive(
    correlation: float, size: float, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Draw stationary noise in which each value resembles the one before, along the last axis."""
    values = random.standard_normal(shape)
    for place in range(1, shape[-1]):
        innovation = np.sqrt(1 - correlation**2) * values[..., place]
        values[..., place] = correlation * values[..., place - 1] + innovation
    return size * values


def draw_drift(random: np.random.Generator, runs: int) -> np.ndarray:
    """Draw the drift of the machine's speed, as in the A/A runs, one factor per run."""
    return 1 + draw_autoregressive(RESEMBLING, DRIFT, (runs,), random) + FASTEST * random.standard_normal(runs)


def draw_heating(random: np.random.Generator, runs: int) -> np.ndarray:
    """Draw factors of a machine that loses a fifth of its speed while the study runs."""
    return 1 + 0.2 * (np.arange(runs) / max(1, runs - 1) - 0.5) + FASTEST * random.standard_normal(runs)


def draw_busy(random: np.random.Generator, runs: int) -> np.ndarray:
    """Draw factors of a machine that others use a quarter of the time, for four runs in a row on average."""
    state, states = random.random() < BUSY_SHARE, []
    begins = BUSY_SHARE / (1 - BUSY_SHARE) / BUSY_RUNS
    for _ in range(runs):
        states.append(state)
        state = random.random() < (1 - 1 / BUSY_RUNS if state else begins)
    factor = np.where(states, SLOWED, 1.0) / (1 + BUSY_SHARE * (SLOWED - 1))
    return factor * (1 + FASTEST * random.standard_normal(runs))


def vary_by_block(correlation: float) -> Draw:
    """Make noise of the arms' difference that resembles the block before, as if others slow one arm more."""

    def draw(random: np.random.Generator, arms: int, blocks: int) -> np.ndarray:
        return 1 + draw_autoregressive(correlation, SCATTER, (arms, blocks), random)

    return draw


WIDE = "wider than needed: "
RARELY_SLOW = WIDE + "a rare slow run widens it more than it shifts it"
TOO_FEW = "too narrow: a few blocks cannot show that they do"
NOISES = [
    Noise("normal", draw_normal),
    Noise(
        "skewed: lognormal", draw_lognormal, WIDE + "with 3 to 5 blocks, Fieller's interval of a noisy other quantity"
    ),
    Noise("skewed: one run in ten a third longer", draw_outliers, RARELY_SLOW),
    Noise("autocorrelated: the machine's speed drifts", vary_in_time(draw_drift)),
    Noise(
        "autocorrelated: the machine slows by a fifth",
        vary_in_time(draw_heating),
        WIDE + "the order cancels most of the drift, which the interval does not know",
    ),
    Noise("autocorrelated: others use it for some runs", vary_in_time(draw_busy), RARELY_SLOW),
    Noise(
        "autocorrelated: the machine's speed drifts, blocks to and fro",
        vary_in_time(draw_drift, order_to_and_fro),
        "too narrow: why studies do not run so",
    ),
    Noise("blocks resemble the one before: 0.2", vary_by_block(0.2), TOO_FEW),
    Noise("blocks resemble the one before: 0.5", vary_by_block(0.5), TOO_FEW),
]

IN_PROPORTION = "too narrow: seconds per doubling change with the machine's speed; a share or a ratio does not"

PLACES = (0.0, 1.0, 2.0)  # of the arms of a trend and of a relation: 1, 2 and 4 ranks, say
TIMES = np.array([[10.0], [12.0], [14.0]])  # true values of these arms
LOADS = np.array([[1.0], [2.0], [5.0]])  # true values of the other quantity
WAIT, REST = 0.8, 3.0  # per unit of it, and of what else there is


def simulate_ratio(random: np.random.Generator, noise: Noise, blocks: int) -> tuple[float, Simulated]:
    """Simulate a ratio: (the truth, the estimate with its interval) of one study."""
    one, other = TIMES[:2] * noise.draw(random, 2, blocks)
    estimate = estimates.sample_of_ratios(one, other)
    return float(TIMES[0, 0] / TIMES[1, 0]), (estimate.middle, *estimate.interval(ERROR_PER_SIDE))


def simulate_reduction(random: np.random.Generator, noise: Noise, blocks: int) -> tuple[float, Simulated]:
    """Simulate a reduction in percent; as `simulate_ratio`."""
    truth, (estimate, low, high) = simulate_ratio(random, noise, blocks)
    return 100 * (1 - truth), (100 * (1 - estimate), 100 * (1 - high), 100 * (1 - low))


def simulate_trend(random: np.random.Generator, noise: Noise, blocks: int) -> tuple[float, Simulated]:
    """Simulate a trend, the change with each place; as `simulate_ratio`."""
    along = np.broadcast_to(np.array(PLACES)[:, None], (len(PLACES), blocks))
    values = TIMES + TIMES.mean() * (noise.draw(random, len(PLACES), blocks) - 1)
    return 2.0, estimates.slope_of_blocks(along, values, PLACES)


def simulate_trend_of_times(random: np.random.Generator, noise: Noise, blocks: int) -> tuple[float, Simulated]:
    """Simulate a trend whose noise is in proportion to the value: a slow machine has a large trend."""
    along = np.broadcast_to(np.array(PLACES)[:, None], (len(PLACES), blocks))
    return 2.0, estimates.slope_of_blocks(along, TIMES * noise.draw(random, len(PLACES), blocks), PLACES)


def simulate_follows(random: np.random.Generator, noise: Noise, blocks: int) -> tuple[float, Simulated]:
    """Simulate a wait that grows with a load, both noisy; as `simulate_ratio`."""
    loads = LOADS * noise.draw(random, len(PLACES), blocks)
    rest = REST * noise.draw(random, len(PLACES), blocks)
    return WAIT, estimates.slope_of_blocks(loads, WAIT * loads + rest, PLACES)


KINDS = {
    "ratio": simulate_ratio,
    "reduction": simulate_reduction,
    "trend": simulate_trend,
    "trend of times": simulate_trend_of_times,
    "follows": simulate_follows,
}


def compute_coverage(kind: str, noise: Noise, blocks: int, studies: int, seed: int = SEED) -> float:
    """Compute the share of the intervals that contain the truth, to three digits."""
    random = np.random.default_rng([seed, blocks, NOISES.index(noise), list(KINDS).index(kind)])
    hits = 0
    for _ in range(studies):
        truth, (_, low, high) = KINDS[kind](random, noise, blocks)
        hits += low <= truth <= high
    return round(hits / studies, 3)


def make_rows(studies: int) -> Iterator[dict[str, object]]:
    """Yield one row per kind of finding and noise, with a column per number of blocks."""
    for noise, kind in itertools.product(NOISES, KINDS):
        shares = {f"blocks_{blocks}": compute_coverage(kind, noise, blocks, studies) for blocks in BLOCKS}
        reason = explain_exception(kind, noise, list(shares.values()))
        yield {"noise": noise.name, "kind": kind, **shares, "exception": reason}


def explain_exception(kind: str, noise: Noise, shares: Sequence[float]) -> str:
    """Explain why a share is not `EXPECTED`; empty if all are."""
    if all(EXPECTED[0] <= round(share, 2) <= EXPECTED[1] for share in shares):
        return ""
    return IN_PROPORTION if kind == "trend of times" and not noise.exception else noise.exception


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=number_types.parse_count, default=4000, help="simulated for each number")
    arguments = parser.parse_args()
    table = pd.DataFrame(make_rows(arguments.studies))
    print(table.to_string(index=False, float_format="%.3f"))
    table.to_csv(OUTPUT, index=False, float_format="%.3f")


if __name__ == "__main__":
    main()
