"""The order in which runs start: compared runs are interleaved.

A block has one repeat of every point. Blocks follow one another, and the order of their points is balanced over them,
so that a drift of the machine's speed affects all points alike. A baseline and its arms stay together, and their own
order is balanced too: what a run leaves behind, such as a warm cache, does not always meet the same arm.

Blocks that only ran to and fro would resemble each other: the last run of one and the first of the next are of the same
point at nearly the same time. Intervals over the blocks would then be too narrow (performance/intervals.py).
"""

import itertools
import operator
from collections.abc import Iterable

from study.experiment.study import PlannedRun

BLOCK = operator.attrgetter("repeat")  # of a run
PREPARE = 1_000_000  # priority of fetching and converting data: a run that waits for its files would lose its place


def sort_runs(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Sort runs by block (repeat), within each in the balanced order of `balance_arms`, a baseline next to its arms."""
    ordered = []
    for index, (_, block) in enumerate(itertools.groupby(sorted(runs, key=BLOCK), key=BLOCK)):
        groups = _group_by_baseline(block)
        for group in (groups[place] for place in balance_arms(len(groups), index)):
            ordered += [group[place] for place in balance_arms(len(group), index)]
    return ordered


def compute_priorities(runs: Iterable[PlannedRun]) -> dict[str, int]:
    """Snakemake's priority of each run, {directory: number}; among runs that could start, the largest number starts."""
    ordered = sort_runs(runs)
    return {run.directory: len(ordered) - place for place, run in enumerate(ordered)}


def balance_arms(arms: int, block: int) -> list[int]:
    """The balanced order of arms in a block (from 0): a row of a Williams design, reversed in odd blocks.

    An even number of arms in as many blocks: each arm has each place once, and follows each other arm once. An odd
    number needs twice as many blocks, and then does each twice. Reference: E. J. Williams, Australian Journal of
    Scientific Research A 2 (1949), 149-168.
    """
    first = [(place + 1) // 2 if place % 2 else (arms - place // 2) % arms for place in range(arms)]
    row = [(arm + block // 2) % arms for arm in first]
    return row if block % 2 == 0 else row[::-1]


def _group_by_baseline(block: Iterable[PlannedRun]) -> list[list[PlannedRun]]:
    """Group the runs of a block by their baseline; a run without arms is alone."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in block:
        groups.setdefault(run.arms[0].baseline if run.arms else run.directory, []).append(run)
    return list(groups.values())
