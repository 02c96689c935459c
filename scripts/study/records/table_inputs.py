"""The rows of the tidy tables that one table or figure uses, straight from the run records of a study.

A table is made from the records of its runs, not from ``runs.csv``: it can then be made before the study's other runs
are, and it is the same as the one that is made after them. Of a study's ``further_results`` it has the runs that are
finished.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import code_version, fields, paths
from study.core.csv_files import stack_tables
from study.experiment.expansion import load_study
from study.experiment.study import LoadingMeasurement, PlannedRun, Study
from study.machines import machine
from study.records import tidy
from study.workloads import command, operations

Uses = Callable[[Any], bool]
Elsewhere = Mapping[str, Iterable[PlannedRun]]  # finished runs of other machines, by machine
NOWHERE: Elsewhere = {}


def elsewhere(study: Study, results: Path) -> dict[str, list[PlannedRun]]:
    """The finished runs of the study's ``further_results`` by machine, in the results folders beside ``results``.

    Raises `StudyError` if a file of such a study or its machine is broken.
    """
    runs_by_machine: dict[str, list[PlannedRun]] = {}
    for each in study.select_elsewhere(paths.find_machine_name(results)):
        ended, _ = tidy.split_ended_runs(
            load_study(each.study, machine.load(each.machine)).runs, paths.locate_other_machine(results, each.machine)
        )
        earlier = runs_by_machine.get(each.machine, [])
        runs_by_machine[each.machine] = list({run.directory: run for run in (*earlier, *ended)}.values())
    return runs_by_machine


def gather(
    study: Study,
    results: Path,
    uses: Uses,
    uses_loading: bool,
    reads_further: bool = False,
    reads_targets: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tidy tables (runs, loading) with the types that they have when read from their CSV files.

    Args:
        study: the study.
        results: the machine's results folder.
        uses: whether a run is used.
        uses_loading: whether the loading measurements are used.
        reads_further: whether the runs of `elsewhere` follow; the column ``record`` leads from ``results`` to theirs.
        reads_targets: whether the columns of `study.records.targets` are used; without, they are absent, and no
            telemetry is read for them.

    Raises:
        StudyError: a record is missing or broken, or a file of a run was changed after its record was made.
    """
    frames = [_runs(filter(uses, study.runs), results, reads_targets)]
    for name, table in elsewhere(study, results).items() if reads_further else ():
        folder = paths.locate_other_machine(results, name)
        frame = _runs(filter(uses, table), folder, reads_targets)
        if len(frame):
            frames.append(frame.assign(record=f"{os.path.relpath(folder, results)}/" + frame["record"]))
    runs = frames[0] if len(frames) == 1 else stack_tables(frames)
    files = [paths.locate_loading(results, measurement.directory) for measurement in study.loading if uses_loading]
    loading = tidy.loading_frame(files, code_version.digest_loading_code(), results)
    table = tidy.set_column_types(runs) if len(runs) else pd.DataFrame()
    return table, tidy.set_column_types(loading, fields.list_columns(fields.LOAD_FILES)) if len(
        loading
    ) else pd.DataFrame()


def collect_other_inputs(
    runs: Iterable[PlannedRun],
    loading: Collection[LoadingMeasurement],
    machine_settings: Mapping[str, Any],
    further: Elsewhere = NOWHERE,
) -> dict[str, Any]:
    """Inputs of the tidy tables besides the records; if one changes, the tables are made anew.

    That is: which code is current, which runs may fail, the machine's peak, the target qualities, and how the
    output of a command is read.
    """
    others = {name: _collect_of_machine(each, machine.load(name)) for name, each in further.items()}
    return {
        **_collect_of_machine(runs, machine_settings),
        **({"further": others} if others else {}),
        "loading_code": code_version.digest_loading_code() if loading else None,
    }


def _collect_of_machine(runs: Iterable[PlannedRun], machine_settings: Mapping[str, Any]) -> dict[str, Any]:
    """`collect_other_inputs` of one machine's runs."""
    used = list(runs)
    arms = {run.directory: tidy.format_arms(run) for run in used if run.arms}
    readings = {run["benchmark"]: command.select_reading(run.spec) for run in used if command.is_command(run.spec)}
    return {
        "peak": _peak(machine_settings) if used else None,
        "targets": {run.dataset.id: str(run.dataset.target) for run in used},
        "may_fail": {run.directory: run.may_fail for run in used if run.may_fail},
        "training_code": tidy.current_code(used, machine_settings),
        **({"disturbance": limits} if (limits := machine_settings.get("disturbance")) and used else {}),
        **({"arms": arms} if arms else {}),  # without, as before studies had arms
        **({"readings": readings} if readings else {}),
    }


def _peak(machine_settings: Mapping[str, Any]) -> operations.Peak:
    return machine_settings.get("peak_flop_per_s_per_rank")


def _runs(runs: Iterable[PlannedRun], results: Path, reads_targets: bool) -> pd.DataFrame:
    """The tidy table of these runs of one machine."""
    used = list(runs)
    on = machine.load(paths.find_machine_name(results))
    code, limits = tidy.current_code(used, on), on.get("disturbance")
    return tidy.runs_frame(used, code, results, _peak(on), False, limits, reads_targets)
