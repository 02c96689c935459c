"""NT3 started as anybody's program, against the study's own run of it: the same training, measured in two ways.

A machine without sensors has a modelled power here, the same for both.
"""

import contextlib
import shutil
from functools import partial
from pathlib import Path

from ratios import SEED, alternate, compared

from study.core import configuration
from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.launch import launch
from study.machines import machine
from study.records.record import make_record
from study.workloads.synthetic import generate

PAIRS = 5
SCRIPT = Path(__file__).with_name("nt3_script")
SHAPE = {"source": "synthetic", "train_samples": 400, "test_samples": 100, "features": 600, "seed": SEED}
POINT = {"scaling": "weak", "epochs": 4, "gpus": 2, "batch_size": 20}
MODELLED = {"power_sensors": ["modelled"], "power_model": {"idle_w": 50, "peak_w": 150}}


def command_ratios(folder):
    """Runtime, time per epoch, energy (modelled) and accuracy of the command over those of the run of our own."""
    on = machine.load("local") | MODELLED
    built_in = _define("nt3", folder, on, {"nt3": SHAPE}, loader="npy")
    place = folder / "nt3_script"
    shutil.copytree(SCRIPT, place, dirs_exist_ok=True)
    built_in.write(place / "like.yaml")
    with contextlib.chdir(place):
        command = _define("nt3_script", place, on, {})
        runs = {"built in": built_in, "command": command}
        found = alternate("NT3", PAIRS, {name: partial(_measured, run, folder / "run") for name, run in runs.items()})
    for measure in found["command"][0]:
        values = {name: [each[measure] for each in records] for name, records in found.items()}
        yield compared(
            f"NT3 as a command, 2 ranks: {measure}", values["command"], "built in", values["built in"], "times"
        )


def _define(benchmark, folder, on, datasets, **keys):
    """The definition of a run of the benchmark, its files made where they are not there."""
    study = {"description": "", "datasets": datasets, "runs": [{"benchmark": benchmark, **POINT, **keys}], "tables": []}
    (run,) = expansion.expand("bench", study, "bench").runs
    spec = configuration.load_named("benchmarks", benchmark)
    for file, form in spec.get("files", {}).items():
        raw, matrix = Path(run.dataset.raw(folder, file)), Path(run.dataset.converted(folder, file))
        if not matrix.exists():
            generate(raw, benchmark, spec, run.dataset.definition, file)
            convert(raw, matrix, matrix.with_suffix(".json"), Form.of(form))
    return inputs.define(run, on, str(folder))


def _measured(run, folder):
    """What a run's record tells."""
    shutil.rmtree(folder, ignore_errors=True)
    launch.launch(run, folder, time_limit_s=600)
    record = make_record(folder)
    if record["status"] != "ok":
        raise SystemExit(f"error: {folder}: {record['failure']['message']}")
    return {
        "runtime": record["runtime_s"],
        "time per epoch": record["training"]["time_per_epoch_s"],
        "energy, modelled": record["power"]["energy_job_j"],
        "accuracy": record["quality"]["accuracy"],
    }
