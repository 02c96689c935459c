"""Costs of own programs: NT3 as a command against the built-in run of it, and a run of an empty command.

Power is modelled from the use of the processor, in both runs of NT3.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from command_cost import measure_command
from ratios import alternate, compute_ratio
from small_runs import NT3, define_run, record_run

from study.core.files import read_json
from study.core.paths import SCRIPTS
from study.launch import batch_job
from study.machines import machine

PAIRS = 5
SCRIPT = Path(__file__).with_name("nt3_script")
EMPTY = Path(__file__).with_name("empty_command")
LAUNCHERS = {"local": "horovodrun", "local_processes": "processes"}
MODELLED = {"power_model": {"idle_w": 50, "peak_w": 150}}


def measure_commands(folder):
    """Measure the ratios of this part: NT3 as a command, an empty command, and its batch job."""
    yield from _measure_nt3(folder)
    yield from _measure_empty_command(folder)
    yield from _measure_batch_job(folder)


def _measure_nt3(folder):
    """Measure runtime, time per epoch, modelled energy of training and accuracy: command over built-in run."""
    on = machine.load("local") | MODELLED
    built_in = define_run("nt3", folder, on, NT3, loader="npy")
    place = folder / "nt3_script"
    shutil.copytree(SCRIPT, place, dirs_exist_ok=True)
    built_in.write(place / "like.yaml")
    with contextlib.chdir(place):
        runs = {"built in": built_in, "command": define_run("nt3_script", place, on, {})}
        records_by_kind = alternate(
            "NT3", PAIRS, {name: partial(_measure_run, run, folder / "run") for name, run in runs.items()}
        )
    for measure in records_by_kind["command"][0]:
        values = {name: [each[measure] for each in records] for name, records in records_by_kind.items()}
        name = f"NT3 as a command, 2 ranks: {measure}"
        yield compute_ratio(name, values["command"], "built in", values["built in"], "times")


def _measure_empty_command(folder):
    """Measure seconds from the start of a job until its record is written, of a program that only ends."""
    place = folder / "empty_command"
    shutil.copytree(EMPTY, place, dirs_exist_ok=True)
    for name, launcher in LAUNCHERS.items():
        with contextlib.chdir(place):
            run = define_run("empty_command", place, machine.load(name), {}, gpus=1, batch_size=1, epochs=1)
            definition_file = (place / f"{name}.yaml").resolve()
            run.write(definition_file)
            seconds = alternate(f"empty command, {launcher}", PAIRS, {"job": partial(_time_job, definition_file)})
        yield compute_ratio(
            f"an empty command by {launcher}: job with its record", seconds["job"], "1 s", [1.0] * PAIRS, "s"
        )


def _measure_batch_job(folder):
    """Measure the CPU time that a batch job costs beside the run's own command."""
    definition_file = (folder / "empty_command" / "local_processes.yaml").resolve()
    line, job = _make_launch_line(definition_file), definition_file.with_name("job.json")
    command = shlex.join(map(str, [sys.executable, *line]))
    batch_job.BatchJob(str(definition_file.parent), command, [str(definition_file)], [], []).write(job)
    lines = {"alone": line, "batch job": [SCRIPTS / "run_job.py", job]}
    cpu_s = alternate(
        "batch job", PAIRS, {how: partial(_measure_cpu_s, definition_file, line) for how, line in lines.items()}
    )
    beside = [job_s - alone_s for job_s, alone_s in zip(cpu_s["batch job"], cpu_s["alone"], strict=True)]
    yield compute_ratio(
        "an empty command: its batch job, beside the command", beside, "1 CPU s", [1.0] * PAIRS, "CPU s"
    )


def _measure_cpu_s(definition_file, line):
    """Measure the CPU time (s) of a command that launches a run."""
    shutil.rmtree(definition_file.with_suffix(""), ignore_errors=True)
    return measure_command(line, definition_file.parent, os.environ)["cpu_s"]


def _make_launch_line(definition_file):
    """Make the command line that launches a run."""
    outcome = definition_file.with_suffix("") / "outcome.json"
    return [SCRIPTS / "launch_training.py", "--run", definition_file, "--outcome", outcome]


def _time_job(definition_file):
    """Time the launch of an empty command, with its record, in seconds."""
    folder = definition_file.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    line = [sys.executable, *_make_launch_line(definition_file)]
    begun = time.perf_counter()
    subprocess.run(line, check=True)
    seconds = time.perf_counter() - begun
    if read_json(folder / "record.json")["status"] != "ok":
        raise SystemExit(f"error: {folder}: the empty command failed")
    return seconds


def _measure_run(run, folder):
    """Launch a run; returns its runtime, time per epoch, energy of training and accuracy."""
    record = record_run(run, folder)
    return {
        "runtime": record["runtime_s"],
        "time per epoch": record["training"]["time_per_epoch_s"],
        "energy of training, modelled": record["power"]["energy_by_phase_j"]["train"],
        "accuracy": record["quality"]["accuracy"],
    }
