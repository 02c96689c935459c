"""Collecting thousands of records, a table, the report and the status of their study: time and peak memory."""

import functools
import json
import multiprocessing
import os
import tempfile
from functools import partial
from pathlib import Path

import run_files
from measured import measured
from planning import study_of
from project import copy_of_project
from ratios import alternate, compared

from study.core import paths, provenance
from study.core.files import sha256
from study.experiment import expansion
from study.records import checked_records, renewal

RECORDS = 5000
ROUNDS = 2
HOST = {"cpu": "a processor", "cores": 4, "memory_mb": 16000, "system": "Linux"}


def record_ratios(_):
    """Of a study of 5,000 finished runs, whose files the tests' generator made, and whose records are checked."""
    with tempfile.TemporaryDirectory(prefix="records.") as folder:
        project = copy_of_project(Path(folder) / "project")
        name, content = study_of(RECORDS)
        project.add_study(name, json.dumps(content))
        runs = expansion.expand(name, content, name).runs
        with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
            pool.map(partial(_finish, project.root / "results"), runs, chunksize=50)
        measures = {
            step: partial(measured, line, project.root, project.variables)
            for step, line in _steps(name, project.root / "scripts").items()
        }
        note = project.root / "results" / "local" / checked_records.FILE
        measures |= {
            f"{step}, not checked before": partial(_without, note, measures[step]) for step in ("collecting", "table")
        }
        found = alternate(f"{RECORDS} records", ROUNDS, measures)
        for what, unit in (("seconds", "s"), ("peak_mb", "MB")):
            values = {step: [each[what] for each in samples] for step, samples in found.items()}
            for step in values:
                yield compared(f"{RECORDS} records: {step}", values[step], f"1 {unit}", [1.0] * ROUNDS, unit)
        steps = ("collecting", "table", "report")
        together = [sum(found[step][each]["seconds"] for step in steps) for each in range(ROUNDS)]
        yield compared(f"{RECORDS} records: collecting, table and report", together, "1 s", [1.0] * ROUNDS, "s")


def _steps(study, scripts):
    """{step: the arguments of Python}, in the order in which each finds the files of those before it."""
    made = paths.study_folder("results/local", study)
    table = [f"--{form}={made}/tables/scaling.{end}" for form, end in
             (("csv", "csv"), ("markdown", "md"), ("latex", "tex"), ("html", "html"))]  # fmt: skip
    tables = [f"--{name}={made}/{name}.csv" for name in ("runs", "loading", "attempts")]
    on = ["--study", study, "--machine", "local"]
    return {
        "collecting": [scripts / "collect_records.py", *on, "--data", "data", *tables],
        "table": [scripts / "make_table.py", "--table", "scaling", "--study", study, *table],
        "report": [scripts / "make_report.py", *on, "--output", f"{made}/report.html"],
        "status": ["-m", "study.commands.main", "status", *on],
    }


def _without(note, measure):
    """As of records that other code has checked, or none."""
    note.unlink()
    return measure()


def _finish(results, run):
    """Make the files and the record of a run."""
    folder = run_files.make_run(results, run)
    facts = _provenance() | json.loads((folder / "provenance.json").read_text())
    facts["host"] |= HOST
    (folder / "provenance.json").write_text(json.dumps(facts))
    outcome = json.loads((folder / "outcome.json").read_text())
    outcome["files"]["provenance.json"] = sha256(folder / "provenance.json")
    (folder / "outcome.json").write_text(json.dumps(outcome))
    renewal.make(folder)


@functools.cache
def _provenance():
    return provenance.collect()
