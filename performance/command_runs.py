"""Programs of one's own: NT3 started as one, against the study's own run of it, and what a run of none at all costs.

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

from measured import measured
from ratios import alternate, compared
from small_runs import NT3, define, record_of

from study.core.files import read_json
from study.core.paths import SCRIPTS
from study.launch import batch_job
from study.machines import machine

PAIRS = 5
SCRIPT = Path(__file__).with_name("nt3_script")
EMPTY = Path(__file__).with_name("empty_command")
LAUNCHERS = {"local": "horovodrun", "local_processes": "processes"}
MODELLED = {"power_model": {"idle_w": 50, "peak_w": 150}}


def command_ratios(folder):
    """The ratios of this part."""
    yield from _of_nt3(folder)
    yield from _of_nothing(folder)
    yield from _of_a_batch_job(folder)


def _of_nt3(folder):
    """Runtime, time per epoch, energy of training (modelled) and accuracy: of the command over those of our own run."""
    on = machine.load("local") | MODELLED
    built_in = define("nt3", folder, on, NT3, loader="npy")
    place = folder / "nt3_script"
    shutil.copytree(SCRIPT, place, dirs_exist_ok=True)
    built_in.write(place / "like.yaml")
    with contextlib.chdir(place):
        runs = {"built in": built_in, "command": define("nt3_script", place, on, {})}
        found = alternate("NT3", PAIRS, {name: partial(_measured, run, folder / "run") for name, run in runs.items()})
    for measure in found["command"][0]:
        values = {name: [each[measure] for each in records] for name, records in found.items()}
        name = f"NT3 as a command, 2 ranks: {measure}"
        yield compared(name, values["command"], "built in", values["built in"], "times")


def _of_nothing(folder):
    """Seconds from the start of the run's job until its record is there, where the program only ends; by launcher."""
    place = folder / "empty_command"
    shutil.copytree(EMPTY, place, dirs_exist_ok=True)
    for name, launcher in LAUNCHERS.items():
        with contextlib.chdir(place):
            run = define("empty_command", place, machine.load(name), {}, gpus=1, batch_size=1, epochs=1)
            given = (place / f"{name}.yaml").resolve()
            run.write(given)
            found = alternate(f"empty command, {launcher}", PAIRS, {"job": partial(_seconds_of_job, given)})
        yield compared(f"an empty command by {launcher}: job with its record", found["job"], "1 s", [1.0] * PAIRS, "s")


def _of_a_batch_job(folder):
    """What a batch job costs its node beside the run's own command, of the same run."""
    given = (folder / "empty_command" / "local_processes.yaml").resolve()
    line, job = _line(given), given.with_name("job.json")
    command = shlex.join(map(str, [sys.executable, *line]))
    batch_job.BatchJob(str(given.parent), command, [str(given)], [], []).write(job)
    lines = {"alone": line, "batch job": [SCRIPTS / "run_job.py", job]}
    found = alternate("batch job", PAIRS, {how: partial(_cpu_s, given, line) for how, line in lines.items()})
    beside = [job_s - alone_s for job_s, alone_s in zip(found["batch job"], found["alone"], strict=True)]
    yield compared("an empty command: its batch job, beside the command", beside, "1 CPU s", [1.0] * PAIRS, "CPU s")


def _cpu_s(given, line):
    shutil.rmtree(given.with_suffix(""), ignore_errors=True)
    return measured(line, given.parent, os.environ)["cpu_s"]


def _line(given):
    return [SCRIPTS / "launch_training.py", "--run", given, "--outcome", given.with_suffix("") / "outcome.json"]


def _seconds_of_job(given):
    folder = given.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    line = [sys.executable, *_line(given)]
    begun = time.perf_counter()
    subprocess.run(line, check=True)
    seconds = time.perf_counter() - begun
    if read_json(folder / "record.json")["status"] != "ok":
        raise SystemExit(f"error: {folder}: the empty command failed")
    return seconds


def _measured(run, folder):
    record = record_of(run, folder)
    return {
        "runtime": record["runtime_s"],
        "time per epoch": record["training"]["time_per_epoch_s"],
        "energy of training, modelled": record["power"]["energy_by_phase_j"]["train"],
        "accuracy": record["quality"]["accuracy"],
    }
