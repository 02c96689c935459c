"""What can be predicted from a study's finished runs: one answer per workload."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from study.core import configuration
from study.experiment import programs
from study.machines.host_capabilities import Capacity
from study.prediction import runtime_model, settings
from study.prediction.evidence import Failures, Misfit, count_failures, find_misfits

FARTHEST_SHOWN = 32  # times the largest measured count
MOST_ASKED = 128  # ranks that a user is asked to measure first


@dataclass(frozen=True)
class Answer:
    """A workload: runs that differ only in ranks, scaling, epochs, batch size and link rate.

    Args:
        workload: its values of `settings.WORKLOAD`.
        observations: its measured points.
        energy_source: of the power: ``measured``, ``modelled``, or None without energies. Where both are there, the
            modelled ones are not used.
        of_gpus: whether the energies are of the GPUs only, since no run has the energy of its whole job.
        model: None if every series has a single rank count.
        candidates: {series: settings at measured, planned, in-between and larger counts, ascending}.
        to_measure: without a model, a rank count whose runs would make one possible; None if there is none.
        carried: how many ranks the machine carries; None where that was not asked.
        failures: {series: {rank count: its failed runs}}.
    """

    workload: dict[str, Any]
    observations: pd.DataFrame
    energy_source: str | None
    of_gpus: bool
    model: runtime_model.RuntimeModel | None
    candidates: dict[tuple[Any, ...], pd.DataFrame]
    to_measure: int | None = None
    carried: Capacity | None = None
    failures: dict[tuple[Any, ...], dict[int, Failures]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages: benchmark, dataset and loader; a command has neither of the last two."""
        values = programs.list_given_values(self.workload[name] for name in programs.WITHOUT)
        return " ".join([self.workload["benchmark"], *values])

    @functools.cached_property
    def predictions(self) -> dict[tuple[Any, ...], runtime_model.Prediction]:
        """Of the candidates of each series that has a model."""
        if (model := self.model) is None:
            return {}
        predicted = {series: rows for series, rows in self.candidates.items() if model.has_series(rows)}
        return {series: runtime_model.predict(model, rows) for series, rows in predicted.items()}

    @functools.cached_property
    def held_out(self) -> list[runtime_model.Prediction]:
        """Of each measured point, from the other rank counts."""
        return list(runtime_model.predict_held_out(self.observations)) if self.model else []

    @functools.cached_property
    def misfits(self) -> dict[tuple[Any, ...], list[Misfit]]:
        """Of each series the measurements that the model does not fit; series without any are left out."""
        misfits = {}
        for series, prediction in self.predictions.items():
            if own := list(find_misfits(prediction, [each for each in self.held_out if each.series == series])):
                misfits[series] = own
        return misfits


def answer_workloads(
    runs: pd.DataFrame,
    planned: dict[tuple[Any, ...], list[int]],
    machine: dict[str, Any],
    failed: pd.DataFrame | None = None,
    carried: Capacity | None = None,
) -> Iterator[Answer]:
    """One `Answer` per workload of the usable runs.

    Args:
        runs: the ``used`` of `study.prediction.settings.select_runs`.
        planned: {series of a workload, see `get_series_key`: its planned rank counts}.
        machine: its ``nodes`` and ``ranks_per_node``.
        failed: the ``failed`` runs of the same selection, by which counts are excluded from a recommendation.
        carried: how many ranks the machine carries, which limits the measurements that are advised; None for no limit.
    """
    failed = runs.iloc[:0] if failed is None or failed.empty else failed
    for workload, group, source, observations, model in _fit_workloads(runs):
        least = configuration.load_named("benchmarks", workload["benchmark"])["epochs"].get("minimum_per_rank", 1)
        labels = (*settings.WORKLOAD, *settings.SERIES)
        keys = [_get_key(row, labels) for _, row in failed.iterrows()]
        candidates, failures = {}, {}
        for values, rows in observations.groupby(settings.SERIES, sort=True):
            series, of_series = tuple(values), {**workload, **rows.iloc[0]}
            planned_counts = planned.get(get_series_key(of_series), [])
            counts = _list_candidate_counts(rows, observations, planned_counts, machine)
            per_node = machine["ranks_per_node"]
            candidates[series] = settings.derive_settings_at_counts(rows.iloc[0], counts, per_node, least)
            is_own = np.array([key == _get_key(of_series, labels) for key in keys], dtype=bool)
            failures[series] = count_failures(failed[is_own], rows)
        of_gpus = bool(group["energy_per_gpu_j"].notna().any() and group["energy_job_j"].isna().all())
        answer = Answer(workload, observations, source, of_gpus, model, candidates, None, carried, failures)
        if not model.epochs:
            to_measure = _choose_count_to_measure(observations, machine, least, carried)
            answer = replace(answer, model=None, to_measure=to_measure)
        yield answer


def _fit_workloads(
    runs: pd.DataFrame,
) -> Iterator[tuple[dict[str, Any], pd.DataFrame, str | None, pd.DataFrame, runtime_model.RuntimeModel]]:
    """(workload, its runs with energies of one source, this source, its observations, their model) of each workload."""
    for key, group in [] if runs.empty else runs.groupby(settings.WORKLOAD, sort=True, dropna=False):
        workload = dict(zip(settings.WORKLOAD, key, strict=True))
        group, source = _keep_one_energy_source(group)
        in_common = {name: workload[name] for name in ("sharding", "learning_rate_scaling", "work")}
        in_common["train_samples"] = group["train_samples"].iloc[0]
        observations = settings.summarize_points(group).assign(**in_common)
        yield workload, group, source, observations, runtime_model.fit_runtime_model(observations)


def fit_series_of_runs(runs: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], runtime_model.RunsOfSeries]]:
    """(values of `settings.WORKLOAD` and of `settings.SERIES`, what predicts its runtime) of each series that can be.

    runs: the ``used`` of `study.prediction.settings.select_runs`. They are predicted as in `answer_workloads`.
    """
    per_node = int(settings.divide_rounding_up(runs["gpus"], runs["nodes"]).max())
    for workload, _, _, observations, model in _fit_workloads(runs):
        for series, rows in observations.groupby(settings.SERIES, sort=True):
            if model.has_series(rows):
                yield (*workload.values(), *series), runtime_model.RunsOfSeries(model, rows.iloc[0], per_node)


def _get_key(values: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Values of a run or row, None where one is missing: two that are missing are the same."""
    return tuple(None if pd.isna(values[name]) else values[name] for name in names)


def _choose_count_to_measure(
    observations: pd.DataFrame, machine: dict[str, Any], least: int, carried: Capacity | None
) -> int | None:
    """A count that the study would accept: one that the machine carries goes first, then a doubling of one."""
    measured, most = set(observations["ranks"]), min(MOST_ASKED, machine["nodes"] * machine["ranks_per_node"])
    limit = carried.ranks if carried else most
    possible = settings.derive_settings_at_counts(
        observations.iloc[0], range(1, most + 1), machine["ranks_per_node"], least
    )
    counts = [int(count) for count in possible.get("ranks", ()) if count not in measured]
    return min(counts, key=lambda count: (count > limit, count & (count - 1) != 0, count), default=None)


def _keep_one_energy_source(runs: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """The runs with energies of one source and one kind only, and this source.

    Measured where there is any; of the whole job where there is any, else of the GPUs. A mean of two kinds is of none.
    """
    energies = ["energy_job_j", "energy_per_gpu_j"]
    sources = set(runs.loc[runs[energies].notna().any(axis=1), "power_source"])
    if not sources:
        return runs, None
    chosen = "measured" if "measured" in sources else "modelled"
    runs = runs.assign(**{name: runs[name].where(runs["power_source"] == chosen) for name in energies})
    if runs["energy_job_j"].notna().any():
        runs = runs.assign(energy_per_gpu_j=runs["energy_per_gpu_j"].where(runs["energy_job_j"].notna()))
    return runs, chosen


def get_workload_key(values: Any, further: Sequence[str] = ()) -> tuple[Any, ...]:
    """The workload of a run (``values[key]`` is a value) or of a row of the tidy table, without the machine."""
    return tuple(values[name] for name in (*settings.WORKLOAD[1:], *further))


def get_series_key(values: Any) -> tuple[Any, ...]:
    """The workload and the series of a run or of a row, see `get_workload_key`."""
    return get_workload_key(values, settings.SERIES)


def _list_candidate_counts(
    rows: pd.DataFrame, observations: pd.DataFrame, planned: Sequence[int], machine: dict[str, Any]
) -> list[int]:
    """The measured and planned counts, those in between, and doublings of the largest one measured.

    In between are the doublings of one rank and of one full node. None is larger than the machine, or smaller than the
    smallest measured count, which is also the base of efficiency.
    """
    smallest, largest = int(rows["ranks"].min()), int(observations["ranks"].max())
    per_node = machine["ranks_per_node"]
    most = min(machine["nodes"] * per_node, FARTHEST_SHOWN * largest)
    doublings = [*list_doublings(1, largest), *list_doublings(per_node, largest), *list_doublings(2 * largest, most)]
    counts = {*rows["ranks"].astype(int), *doublings, *(count for count in planned if count <= most)}
    return sorted(count for count in counts if count >= smallest)


def list_doublings(first: int, last: float) -> list[int]:
    """First, 2 x first, 4 x first, ... up to ``last``."""
    return [first * 2**power for power in range(64) if first * 2**power <= last]
