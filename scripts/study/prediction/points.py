"""Points of one job at several counts: a series, whose times a model is fitted to.

Times are those of a step, an epoch or a run. A throughput has become the time of ``batch_size`` samples of each rank,
or of all ranks together where these share a fixed work; without a batch size, or where it changes, of one sample.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from study.core import throughput_units
from study.prediction.runtime_model import RunsOfSeries, estimate_variances
from study.prediction.scaling_model import LEAST_COUNTS, ScalingModel, fit_scaling

WORKS = ("fixed", "per_rank", "epochs")


@dataclass(frozen=True)
class Series:
    """One job at several counts.

    Args:
        name: from the column ``series``, else the file's name.
        quantity: the column with the times, or with the throughput; steps/s are the time of a step.
        work: one of `WORKS`.
        points: a row per count, ascending: ranks, nodes (NaN if unknown), time (s, mean of the repeats), scatter
            (relative variance of that mean), repeats, load_s, energy_j (of all ranks, during ``time``; NaN if unknown).
        per_node: ranks of a node; None if unknown.
        origin: ``measured`` or ``imported``.
        notes: what was assumed, in sentences.
        owner: whose the throughput is by its unit, ``all``, ``rank`` or ``node``; None for times.
        unit: of the throughput, as it was written; None for times in s.
        samples: whose time it is of each rank, or of all together; 1 where steps or times were measured.
        runs: where the points are runs of a study, of which more is known than their runtime.
        imported: counts of a measured series whose points are imported.
    """

    name: str
    quantity: str
    work: str
    points: pd.DataFrame
    per_node: float | None
    origin: str = "imported"
    notes: list[str] = field(default_factory=list)
    owner: str | None = None
    unit: str | None = None
    samples: float = 1.0
    runs: RunsOfSeries | None = None
    imported: tuple[int, ...] = ()

    @property
    def is_throughput(self) -> bool:
        """Whether a throughput was measured, also one of steps, whose times are those of a step."""
        return self.unit is not None

    def to_unit(self, times: Any, ranks: Any) -> Any:
        """Times (s) at counts as throughputs in the unit that was measured; as they are, where times were measured."""
        if self.unit is None:
            return times
        unit = throughput_units.parse_throughput(self.unit)
        work = 1.0 if unit.time_of else self.samples if self.is_fixed else self.samples * ranks
        return np.asarray(unit.from_all_ranks(work / times, ranks, np.ceil(ranks / (self.per_node or 1))))

    @property
    def is_fixed(self) -> bool:
        """Whether perfect scaling halves the time on twice the ranks; otherwise it stays."""
        return self.work == "fixed" or (self.work == "epochs" and self.quantity == "runtime_s")

    @property
    def counts(self) -> np.ndarray:
        """The counts, ascending."""
        return self.points["ranks"].to_numpy(float)

    @property
    def times(self) -> np.ndarray:
        """The mean time at each count, in s."""
        return self.points["time"].to_numpy(float)

    def list_origins(self, counts: np.ndarray) -> np.ndarray:
        """The origin of the point at each count: `origin`, imported, or predicted where there is no point."""
        own = np.where(np.isin(counts, self.imported), "imported", self.origin)
        return np.where(np.isin(counts, self.counts), own, "predicted")

    def get_job_shares(self, counts: np.ndarray, amount: float) -> np.ndarray:
        """How often a count's time is in a job of ``amount`` times that of the smallest one, which more ranks share."""
        return np.full(len(counts), amount) if self.is_fixed else amount * self.counts[0] / counts

    def loads(self, counts: np.ndarray) -> np.ndarray:
        """Seconds of loading beside the times at each count, (counts,); 0 where no row has any or the times include it.

        Those of a count are its own, between counts that have some they are interpolated in the logarithm of the ranks,
        and beyond them they are those of the nearest one.
        """
        loads = None if self.quantity == "runtime_s" else self._interpolate(self.points["load_s"], counts)
        return np.zeros(len(counts)) if loads is None else loads

    def compute_watts(self, counts: np.ndarray) -> np.ndarray | None:
        """Mean power of a rank at each count in W, interpolated as the loads; None if no row tells it."""
        return self._interpolate(self.points["energy_j"] / self.points["time"] / self.points["ranks"], counts)

    def _interpolate(self, values: pd.Series, counts: np.ndarray) -> np.ndarray | None:
        values = values.set_axis(np.log(self.counts)).dropna()
        return np.interp(np.log(counts), values.index, values) if len(values) else None

    @functools.cached_property
    def variances(self) -> tuple[np.ndarray, float]:
        """Relative variance of a single run at each count, and the relative deviation of a further run.

        See `study.prediction.runtime_model.estimate_variances`; a deviation that is given is the count's own.
        """
        scatter, repeats = (self.points[name].to_numpy(float) for name in ("scatter", "repeats"))
        own = scatter * repeats
        variances, _, further = estimate_variances(own, np.maximum(repeats - 1, scatter > 0))
        return np.where((repeats == 1) & (scatter > 0), own, variances), further

    def fit_model(self) -> ScalingModel | RunsOfSeries | None:
        """The model of the times; None with fewer than `LEAST_COUNTS` counts."""
        if self.runs is not None:
            return self.runs
        if len(self.points) < LEAST_COUNTS:
            return None
        variances, further = self.variances
        repeats = self.points["repeats"].to_numpy(float)
        return fit_scaling(self.counts, self.times, self.is_fixed, variances, repeats, further)
