"""The order in which runs start: compared runs are interleaved.

A block has one repeat of every point. Blocks follow one another, and every second one runs in reverse order, so that a
drift of the machine's speed affects all points alike.
"""

import itertools
from collections.abc import Iterable

from study.experiment.study import PlannedRun

PREPARE = 1_000_000  # priority of fetching and converting data: a run that waits for its files would lose its place


def in_order(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The runs in the order in which they start, if they start one after the other."""
    ordered = []
    for index, (_, block) in enumerate(itertools.groupby(sorted(runs, key=_block), key=_block)):
        members = list(block)
        ordered += members if index % 2 == 0 else members[::-1]
    return ordered


def priorities(runs: Iterable[PlannedRun]) -> dict[str, int]:
    """Snakemake's priority of each run, {directory: number}; among runs that could start, the largest number starts."""
    ordered = in_order(runs)
    return {run.directory: len(ordered) - place for place, run in enumerate(ordered)}


def _block(run: PlannedRun) -> int:
    return run.repeat
