"""Runs of a small NT3, launched as the study launches them, and their records."""

import shutil

from ratios import SEED
from whole_runs import planned

from study.experiment import inputs
from study.launch import launch
from study.records import renewal

NT3 = {"nt3": {"source": "synthetic", "train_samples": 400, "test_samples": 100, "features": 600, "seed": SEED}}
POINT = {"scaling": "weak", "epochs": 4, "gpus": 2, "batch_size": 20}


def define(benchmark, folder, on, datasets, **keys):
    """The definition of a run of the benchmark on machine ``on``, its files made where they are not there."""
    run, _ = planned(folder, datasets, {"benchmark": benchmark, **POINT, **keys})
    return inputs.define(run, on, str(folder))


def record_of(run, folder):
    """The record of a run that this launches."""
    shutil.rmtree(folder, ignore_errors=True)
    launch.launch(run, folder, time_limit_s=600)
    record = renewal.make(folder)
    if record["status"] != "ok":
        raise SystemExit(f"error: {folder}: {record['failure']['message']}")
    return record
