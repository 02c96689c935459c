"""What can be predicted from a study's finished runs: one answer per workload."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from study.core import configuration
from study.experiment import programs
from study.machines.host_capabilities import Capacity
from study.prediction import settings
from study.prediction.evidence import Failures, Misfit, count_failures, find_misfits
from study.prediction.runtime_model import Prediction, RunsOfSeries, RuntimeModel, fit_runtime_model, predict
from study.prediction.settings import LEAST_POINTS

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
        packages: the library versions of its runs, each as in the column ``packages``.
        model: None if no series has `LEAST_POINTS` rank counts.
        candidates: {series: settings at measured, planned, in-between and larger counts, ascending}.
        to_measure: without a model, rank counts whose runs would make one possible, as far as the machine carries them.
        beyond: the same of a larger machine.
        carried: how many ranks the machine carries; None where that was not asked.
        failures: {series: {rank count: its failed runs}}.
    """

    workload: dict[str, Any]
    observations: pd.DataFrame
    energy_source: str | None
    of_gpus: bool
    packages: frozenset[str]
    model: RuntimeModel | None
    candidates: dict[tuple[Any, ...], pd.DataFrame]
    to_measure: tuple[int, ...] = ()
    beyond: tuple[int, ...] = ()
    carried: Capacity | None = None
    failures: dict[tuple[Any, ...], dict[int, Failures]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages: benchmark, dataset and loader."""
        return _format_name(self.workload)

    @functools.cached_property
    def predictions(self) -> dict[tuple[Any, ...], Prediction]:
        """Of the candidates of each series that has a model."""
        if self.model is None:
            return {}
        return {
            series: predict(self.model, rows) for series, rows in self.candidates.items() if self.model.has_series(rows)
        }

    @functools.cached_property
    def misfits(self) -> dict[tuple[Any, ...], list[Misfit]]:
        """Of each series the measurements that the model does not fit; series without any are left out."""
        misfits_by_series = {series: list(find_misfits(prediction)) for series, prediction in self.predictions.items()}
        return {series: misfits for series, misfits in misfits_by_series.items() if misfits}


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
    if runs.empty:
        return
    failed = runs.iloc[:0] if failed is None or failed.empty else failed
    per_node = machine["ranks_per_node"]
    for key, group in runs.groupby(settings.WORKLOAD, sort=True, dropna=False):
        workload = dict(zip(settings.WORKLOAD, key, strict=True))
        group, source = _keep_one_energy_source(group)
        of_gpus = bool(group["energy_per_gpu_j"].notna().any() and group["energy_job_j"].isna().all())
        observations = observe_workload(group, workload)
        least = configuration.load_named("benchmarks", workload["benchmark"])["epochs"].get("minimum_per_rank", 1)
        candidates = {
            tuple(series): settings.derive_settings_at_counts(
                rows.iloc[0], _list_candidate_counts(rows, observations, planned, workload, machine), per_node, least
            )
            for series, rows in observations.groupby(settings.SERIES, sort=True)
        }
        model = fit_runtime_model(observations)
        enough = bool(model.epochs)
        to_measure, beyond = ((), ()) if enough else _choose_counts_to_measure(observations, machine, least, carried)
        failures_of = _group_failures(failed, workload, observations)
        packages = frozenset(group["packages"])
        yield Answer(
            workload, observations, source, of_gpus, packages, model if enough else None, candidates, to_measure,
            beyond, carried, failures_of,
        )  # fmt: skip


def observe_workload(runs: pd.DataFrame, workload: dict[str, Any]) -> pd.DataFrame:
    """The observations of a workload's runs, with what all of them have in common."""
    in_common = {name: workload[name] for name in ("sharding", "learning_rate_scaling", "work")}
    return settings.summarize_points(runs).assign(**in_common, train_samples=runs["train_samples"].iloc[0])


def fit_series_of_runs(runs: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], RunsOfSeries]]:
    """(values of `settings.WORKLOAD` and of `settings.SERIES`, what predicts its runtime) of each series that can be.

    runs: the ``used`` of `study.prediction.settings.select_runs`. They are predicted as in `answer_workloads`.
    """
    per_node = int(settings.divide_rounding_up(runs["gpus"], runs["nodes"]).max())
    for key, group in runs.groupby(settings.WORKLOAD, sort=True, dropna=False):
        observations = observe_workload(
            _keep_one_energy_source(group)[0], dict(zip(settings.WORKLOAD, key, strict=True))
        )
        model = fit_runtime_model(observations)
        for series, rows in observations.groupby(settings.SERIES, sort=True):
            if model.has_series(rows):
                yield (*key, *series), RunsOfSeries(model, rows.iloc[0], per_node)


def _format_name(workload: Mapping[str, Any]) -> str:
    """Benchmark, dataset and loader; a command has neither of the last two."""
    return " ".join([workload["benchmark"], *programs.list_given_values(workload[name] for name in programs.WITHOUT)])


def _group_failures(
    failed: pd.DataFrame, workload: dict[str, Any], observations: pd.DataFrame
) -> dict[tuple[Any, ...], dict[int, Failures]]:
    """{series: {rank count: its failed runs}} of a workload."""
    here = failed[[_has_same_values(row, workload, settings.WORKLOAD) for _, row in failed.iterrows()]]
    failures = {}
    for series, rows in observations.groupby(settings.SERIES, sort=True):
        of_series = here[[_has_same_values(row, rows.iloc[0], settings.SERIES) for _, row in here.iterrows()]]
        failures[tuple(series)] = count_failures(of_series, rows)
    return failures


def _has_same_values(row: Any, other: Any, names: Sequence[str]) -> bool:
    """Whether two rows have the same values; two that are missing are the same."""
    return all(row[name] == other[name] or (pd.isna(row[name]) and pd.isna(other[name])) for name in names)


def _choose_counts_to_measure(
    observations: pd.DataFrame, machine: dict[str, Any], least: int, carried: Capacity | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(counts that the study would accept and the machine carries, those of a larger machine).

    Doublings of one go first; together they are as many as a model lacks.
    """
    measured_counts = set(observations["ranks"].astype(int))
    most = min(MOST_ASKED, machine["nodes"] * machine["ranks_per_node"])
    possible = settings.derive_settings_at_counts(
        observations.iloc[0], range(1, most + 1), machine["ranks_per_node"], least
    )
    counts = [int(count) for count in possible.get("ranks", ()) if count not in measured_counts]
    counts.sort(key=lambda count: (count & (count - 1) != 0, count))
    lacks = LEAST_POINTS - len(measured_counts)
    here = [count for count in counts if carried is None or count <= carried.ranks][:lacks]
    beyond = [count for count in counts if count not in here][: lacks - len(here)]
    return tuple(sorted(here)), tuple(sorted(beyond))


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


def get_workload_key(values: Any) -> tuple[Any, ...]:
    """The workload of a run (``values[key]`` is a value) or of a row of the tidy table, without the machine."""
    return tuple(values[name] for name in settings.WORKLOAD[1:])


def get_series_key(values: Any) -> tuple[Any, ...]:
    """The workload and the series of a run or of a row, see `get_workload_key`."""
    return (*get_workload_key(values), *(values[name] for name in settings.SERIES))


def _list_candidate_counts(
    rows: pd.DataFrame,
    observations: pd.DataFrame,
    planned: dict[tuple[Any, ...], list[int]],
    workload: dict[str, Any],
    machine: dict[str, Any],
) -> list[int]:
    """The measured and planned counts, those in between, and doublings of the largest one measured.

    In between are the doublings of one rank and of one full node. None is larger than the machine, or smaller than the
    smallest measured count, which is also the base of efficiency.
    """
    smallest = int(rows["ranks"].min())
    largest = int(observations["ranks"].max())
    per_node = machine["ranks_per_node"]
    most = min(machine["nodes"] * per_node, FARTHEST_SHOWN * largest)
    between = [each for first in (1, per_node) for each in _list_doublings(first, largest) if each >= smallest]
    farther = _list_doublings(2 * largest, most)
    planned_counts = planned.get(get_series_key({**workload, **rows.iloc[0]}), [])
    return sorted(
        {
            *rows["ranks"].astype(int),
            *between,
            *farther,
            *(each for each in planned_counts if smallest <= each <= most),
        }
    )


def _list_doublings(first: int, last: int) -> list[int]:
    """First, 2 x first, 4 x first, ... up to ``last``."""
    doublings = []
    while first <= last:
        doublings.append(first)
        first *= 2
    return doublings
