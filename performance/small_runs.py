"""Runs of a small NT3, launched as the study launches them, and their records."""

import shutil
from pathlib import Path

from ratios import SEED

from study.core import configuration
from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.launch import launch
from study.records import renewal
from study.workloads.synthetic import generate

NT3 = {"nt3": {"source": "synthetic", "train_samples": 400, "test_samples": 100, "features": 600, "seed": SEED}}
POINT = {"scaling": "weak", "epochs": 4, "gpus": 2, "batch_size": 20}


def define(benchmark, folder, on, datasets, **keys):
    """The definition of a run of the benchmark on machine ``on``, its files made where they are not there."""
    study = {"description": "", "datasets": datasets, "runs": [{"benchmark": benchmark, **POINT, **keys}], "tables": []}
    (run,) = expansion.expand("bench", study, "bench").runs
    spec = configuration.load_named("benchmarks", benchmark)
    for file, form in spec.get("files", {}).items():
        raw, matrix = Path(run.dataset.raw(folder, file)), Path(run.dataset.converted(folder, file))
        if not matrix.exists():
            generate(raw, benchmark, spec, run.dataset.definition, file)
            convert(raw, matrix, matrix.with_suffix(".json"), Form.of(form))
    return inputs.define(run, on, str(folder))


def record_of(run, folder):
    """The record of a run that this launches."""
    shutil.rmtree(folder, ignore_errors=True)
    launch.launch(run, folder, time_limit_s=600)
    record = renewal.make(folder)
    if record["status"] != "ok":
        raise SystemExit(f"error: {folder}: {record['failure']['message']}")
    return record
