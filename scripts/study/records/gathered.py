"""The rows of the tidy tables that one table or figure uses, straight from the run records of a study.

A table is made from the records of its runs, not from ``runs.csv``: it can then be made before the study's other runs
are, and it is the same as the one that is made after them.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import code_version, paths
from study.experiment.study import Study
from study.machines import machine
from study.records import tidy


def gather(
    study: Study, results: Path, uses: Callable[[Any], bool], uses_loading: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tidy tables (runs, loading) as read from their CSV files, with only what is used.

    Args:
        study: the study.
        results: the machine's results folder.
        uses: whether a run is used.
        uses_loading: whether the loading measurements are used.

    Raises:
        StudyError: a record is missing or broken, or a file of a run was changed after its record was made.
    """
    used = [run for run in study.runs if uses(run)]
    code = {name: code_version.training_code(name) for name in {run["benchmark"] for run in used}}
    peak = machine.load(paths.machine_of(results)).get("peak_flop_per_s_per_rank")
    runs = tidy.with_targets(tidy.runs_frame(used, code, results, peak, verify_old=False), used, results)
    files = [paths.loading(results, measurement.directory) for measurement in study.loading if uses_loading]
    loading = tidy.loading_frame(files, code_version.loading_code(), results)
    return tidy.read_runs(_csv(runs)), tidy.read_loading(_csv(loading))


def _csv(frame: pd.DataFrame) -> io.StringIO:
    """The frame as CSV: reading it back gives columns the types that they have in ``runs.csv``."""
    return io.StringIO(frame.to_csv(index=False))
