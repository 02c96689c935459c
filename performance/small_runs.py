"""Runs of a small NT3, launched as the study launches them, and their records."""

import shutil

from ratios import SEED
from whole_runs import plan_run

from study.experiment import inputs
from study.launch import launch
from study.records import renewal

NT3 = {"nt3": {"source": "synthetic", "train_samples": 400, "test_samples": 100, "features": 600, "seed": SEED}}
POINT = {"scaling": "weak", "epochs": 4, "gpus": 2, "batch_size": 20}


def define_run(benchmark, folder, on, datasets, **keys):
    """Define a run of the benchmark on machine ``on``, and make its missing files."""
    run, _ = plan_run(folder, datasets, {"benchmark": benchmark, **POINT, **keys})
    return inputs.define_run(run, on, str(folder))


def record_run(run, folder):
    """Launch a run and make its record; exits if the run fails."""
    shutil.rmtree(folder, ignore_errors=True)
    launch.launch(run, folder, time_limit_s=600)
    record = renewal.make(folder)
    if record["status"] != "ok":
        raise SystemExit(f"error: {folder}: {record['failure']['message']}")
    return record
