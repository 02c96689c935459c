"""NT3 started as anybody's program, against the study's own run of it: the same training, measured in two ways.

Power is modelled from the use of the processor, in both.
"""

import contextlib
import shutil
from functools import partial
from pathlib import Path

from ratios import alternate, compared
from small_runs import NT3, define, record_of

from study.machines import machine

PAIRS = 5
SCRIPT = Path(__file__).with_name("nt3_script")
MODELLED = {"power_model": {"idle_w": 50, "peak_w": 150}}


def command_ratios(folder):
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


def _measured(run, folder):
    record = record_of(run, folder)
    return {
        "runtime": record["runtime_s"],
        "time per epoch": record["training"]["time_per_epoch_s"],
        "energy of training, modelled": record["power"]["energy_by_phase_j"]["train"],
        "accuracy": record["quality"]["accuracy"],
    }
