"""Cost of collecting thousands of records, of a table, the report and the status of their study."""

import functools
import json
import multiprocessing
import os
import tempfile
from functools import partial
from pathlib import Path

import run_files
from command_cost import measure_command
from planning import make_study
from project import copy_of_project
from ratios import alternate, compute_ratio

from study.core import paths, provenance
from study.core.files import sha256
from study.experiment import expansion
from study.records import checked_records, renewal

RECORDS = 5000
ROUNDS = 2
HOST = {"cpu": "a processor", "cores": 4, "memory_mb": 16000, "system": "Linux"}


def measure_records(_):
    """Measure a study of 5,000 finished runs, whose files the tests' generator made, and whose records are checked."""
    with tempfile.TemporaryDirectory(prefix="records.") as folder:
        project = copy_of_project(Path(folder) / "project")
        name, content = make_study(RECORDS)
        project.add_study(name, json.dumps(content))
        runs = expansion.expand_study(name, content, name).runs
        with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
            pool.map(partial(_make_finished_run, project.root / "results"), runs, chunksize=50)
        measures = {
            step: partial(measure_command, line, project.root, project.variables)
            for step, line in _make_step_commands(name, project.root / "scripts").items()
        }
        note = project.root / "results" / "local" / checked_records.FILE
        measures |= {
            f"{step}, not checked before": partial(_measure_unchecked, note, measures[step])
            for step in ("collecting", "table")
        }
        samples_by_step = alternate(f"{RECORDS} records", ROUNDS, measures)
        for measure, unit in (("seconds", "s"), ("peak_mb", "MB")):
            values = {step: [each[measure] for each in samples] for step, samples in samples_by_step.items()}
            for step in values:
                yield compute_ratio(f"{RECORDS} records: {step}", values[step], f"1 {unit}", [1.0] * ROUNDS, unit)
        steps = ("collecting", "table", "report")
        together = [sum(samples_by_step[step][each]["seconds"] for step in steps) for each in range(ROUNDS)]
        yield compute_ratio(f"{RECORDS} records: collecting, table and report", together, "1 s", [1.0] * ROUNDS, "s")


def _make_step_commands(study, scripts):
    """Make {step: the arguments of Python}, in the order in which each finds the files of those before it."""
    study_folder = paths.locate_study("results/local", study)
    table = [f"--{form}={study_folder}/tables/scaling.{end}" for form, end in
             (("csv", "csv"), ("markdown", "md"), ("latex", "tex"), ("html", "html"))]  # fmt: skip
    tables = [f"--{name}={study_folder}/{name}.csv" for name in ("runs", "loading", "attempts")]
    on = ["--study", study, "--machine", "local"]
    return {
        "collecting": [scripts / "collect_records.py", *on, "--data", "data", *tables],
        "table": [scripts / "make_table.py", "--table", "scaling", "--study", study, *table],
        "report": [scripts / "make_report.py", *on, "--output", f"{study_folder}/report.html"],
        "status": ["-m", "study.commands.main", "status", *on],
    }


def _measure_unchecked(note, measure):
    """Measure a step after removing the note of checked records, so that it checks them."""
    note.unlink()
    return measure()


def _make_finished_run(results, run):
    """Make the files and the record of a finished run."""
    folder = run_files.make_run(results, run)
    facts = _collect_provenance() | json.loads((folder / "provenance.json").read_text())
    facts["host"] |= HOST
    (folder / "provenance.json").write_text(json.dumps(facts))
    outcome = json.loads((folder / "outcome.json").read_text())
    outcome["files"]["provenance.json"] = sha256(folder / "provenance.json")
    (folder / "outcome.json").write_text(json.dumps(outcome))
    renewal.make(folder)


@functools.cache
def _collect_provenance():
    """Collect this host's provenance, once per process."""
    return provenance.collect_provenance()
