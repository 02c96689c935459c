"""Runs that are launched as the study launches them, but one by one in a folder and without Snakemake."""

import shutil
from pathlib import Path
from typing import Any

from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import inputs
from study.experiment.study import PlannedRun
from study.launch import launch
from study.machines import machine
from study.records.record import make_record
from study.workloads.synthetic import generate_file


def make_files(run: PlannedRun, folder: Path) -> None:
    """Generate and convert the synthetic files of a run."""
    for file, form in run.spec["files"].items():
        raw, matrix = run.dataset.locate_raw(str(folder), file), run.dataset.locate_converted(str(folder), file)
        generate_file(raw, run.dataset.benchmark, run.spec, run.dataset.definition, file)
        convert(raw, matrix, inputs.locate_sidecar(matrix), Form.from_spec(form))


def launch_run(run: PlannedRun, folder: Path) -> dict[str, Any]:
    """Launch a run on this machine, with the files in ``folder``; returns its record, or exits if it fails."""
    definition = inputs.define_run(run, machine.load("local"), str(folder))
    shutil.rmtree(folder / "run", ignore_errors=True)  # an outcome is never overwritten
    launch.launch(definition, folder / "run", time_limit_s=600)
    record = make_record(folder / "run")
    if record["status"] != "ok":
        raise SystemExit(f"error: {record['failure']['message']}")
    return record
