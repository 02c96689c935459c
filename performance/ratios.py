"""Paired, alternating measurements, and the ratios of their medians."""

import statistics
import sys
from dataclasses import dataclass

SEED = 2019  # of synthetic files


@dataclass(frozen=True)
class Ratio:
    """One row of results.csv. ratio: of the medians; low, high: the smallest and largest ratio of a pair."""

    name: str
    baseline: str
    ratio: float
    low: float
    high: float
    unit: str


def alternate(what, pairs, measures):
    """Call each of ``measures``, {name: function}, in turn, ``pairs`` times; returns {name: [its values]}.

    Every other time they go in the opposite order, so that none always has the machine as the same other one left it.
    """
    values = {name: [] for name in measures}
    for pair in range(1, pairs + 1):
        for name, measure in list(measures.items())[:: 1 if pair % 2 else -1]:
            print(f"{what}: {name}, {pair} of {pairs}", file=sys.stderr, flush=True)
            values[name].append(measure())
    return values


def compute_speedup(name, values, baseline, baseline_values):
    """Compute how many times faster ``name`` is than ``baseline``, by their times."""
    return compute_ratio(name, baseline_values, baseline, values, "times faster")


def compute_ratio(name, values, baseline, baseline_values, unit):
    """Compute the ratio of ``values`` over ``baseline_values``, and its range over the pairs."""
    ratios = [value / other for value, other in zip(values, baseline_values, strict=True)]
    middle = statistics.median(values) / statistics.median(baseline_values)
    return Ratio(name, baseline, middle, min(ratios), max(ratios), unit)
