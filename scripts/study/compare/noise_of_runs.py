"""How much runs differ within a block: what the power of a design depends on, assumed before there are runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.compare import estimates, failed_runs
from study.core import paths
from study.core.wording import format_count
from study.experiment import schemas
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.machines import machine
from study.records import tidy

LEAST_FREEDOM = 5  # fewer blocks and points leave the noise itself too uncertain


@dataclass(frozen=True)
class Noise:
    """Scatter within blocks: standard deviation of a run's logarithm. runs: number it is from; 0 if assumed."""

    deviation: float
    runs: int = 0

    @property
    def words(self) -> str:
        """The scatter in words: ``2 % (assumed)``."""
        how = f"measured in {format_count(self.runs, 'run')}" if self.runs else "assumed"
        return f"{100 * self.deviation:.2g} % ({how})"


ASSUMED = Noise(0.02)


def estimate_noise_of_study(study: Study, folder: str) -> Noise:
    """The `Noise` of the runtime of a study's finished runs that give timings; assumed if these are too few.

    folder: ``results/<machine>``.
    """
    if not study.findings and not any(run.arms for run in study.runs):
        return ASSUMED
    finished, _ = tidy.split_ended_runs((run for run in study.runs if is_observed(run, None)), folder)
    if not finished:
        return ASSUMED
    code = tidy.current_code(study.runs, machine.load(paths.find_machine_name(folder)))
    return estimate_noise(tidy.runs_frame(finished, code, folder))


def estimate_noise(runs: pd.DataFrame, measure: str = "runtime_s") -> Noise:
    """The `Noise` of a measure: what is left of its logarithms less the means of each point and of each block.

    Points that have the same blocks are taken together. runs: the tidy table. Assumed if these are too few.
    """
    squares, freedom, number = 0.0, 0, 0
    for values in _make_tables(runs, measure) if len(runs) else ():
        rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
        squares += float((rest**2).sum())
        freedom += (values.shape[0] - 1) * (values.shape[1] - 1)
        number += values.size
    return Noise(math.sqrt(squares / freedom), number) if freedom >= LEAST_FREEDOM and squares > 0 else ASSUMED


def _make_tables(runs: pd.DataFrame, measure: str) -> Iterator[np.ndarray]:
    """The logarithms of the measure: points in rows, blocks in columns."""
    good = failed_runs.keep_proven(runs[runs[measure].astype(float) > 0])
    keys = [name for name in ("machine", *schemas.list_separating_keys()) if name in good]
    points = [
        np.log(estimates.index_by_block(rows)[measure].astype(float).sort_index())
        for _, rows in good.groupby(keys, dropna=False, sort=False)
    ]
    for blocks in dict.fromkeys(tuple(each.index) for each in points):
        alike = [each.to_numpy() for each in points if tuple(each.index) == blocks]
        if len(alike) > 1 and len(blocks) > 1:
            yield np.array(alike)
