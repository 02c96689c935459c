"""Start the ranks of one training run under the machine's launcher and record how it ended.

A planned run, as its rule calls it:  --definition JSON --outcome results/.../outcome.json
A run made before, once more:         --run results/.../run.yaml --outcome /tmp/again/outcome.json
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from study.core import number_types
from study.core.errors import StudyError, exit_with_message
from study.core.files import read_json, write_text
from study.core.paths import OUTCOME, TIMED_OUT, is_same
from study.experiment import inputs
from study.experiment.definition import RunDefinition
from study.instruments import disturbance
from study.instruments.heartbeats import LIMIT_S
from study.launch.launch import give_up, launch, set_aside
from study.machines import machine, queues
from study.records import renewal
from study.workloads import command


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--definition", type=json.loads, help="the run, as JSON")
    given.add_argument("--run", type=Path, help="the run.yaml of an earlier run")
    seconds = number_types.seconds
    parser.add_argument("--time-limit-s", type=seconds, default=3600, help="seconds after which the run is ended")
    parser.add_argument(
        "--stall-limit-s",
        type=seconds,
        default=LIMIT_S,
        help="seconds without a heartbeat after which the run is ended",
    )
    parser.add_argument("--jobs-lost", type=number_types.whole, default=0, help="number of lost batch jobs of this run")
    parser.add_argument(
        "--calibrated", type=number_types.whole, choices=[0, 1], default=0, help="1: time the calibration too"
    )
    parser.add_argument(
        "--extendable",
        type=number_types.whole,
        choices=[0, 1],
        default=0,
        help="1: the time limit was estimated; a run that reaches it is no result, and runs again with more time",
    )
    parser.add_argument(
        "--outcome", required=True, type=Path, help="outcome.json; what a run without an outcome left there is removed"
    )
    parser.add_argument("--log", type=Path, help="the file that says why the run could not be started")
    arguments = parser.parse_args()
    try:
        _train(arguments)
    except StudyError as error:
        if arguments.log:
            write_text(arguments.log, "\n".join((*error.lines, "")))
        raise


def _train(arguments: argparse.Namespace) -> None:
    if arguments.outcome.name != OUTCOME:
        raise StudyError(f"--outcome: {arguments.outcome} must be named {OUTCOME}, in a folder of its own")
    if arguments.run and is_same(arguments.run.parent, arguments.outcome.parent):
        raise StudyError(f"--outcome: {arguments.outcome.parent} is the folder of the run itself; give a new one")
    if arguments.run:
        run = RunDefinition.read(arguments.run, inputs.taken_over)
    else:
        run = inputs.taken_over(arguments.definition)
    folder = arguments.outcome.parent
    begun_again = (folder / TIMED_OUT).exists()  # its job was not lost
    if arguments.jobs_lost and not begun_again and give_up(run, folder, arguments.jobs_lost):
        set_aside(folder, arguments.extendable)
        renewal.make_at_end(folder)
        return
    job = queues.read_job({**os.environ, **run.machine["environment"]}, machine.load_if_declared(run.machine["name"]))
    left = queues.compute_seconds_left(job, time.time())  # so that the end of the run is recorded before its job ends
    limit_s = arguments.time_limit_s if left is None else min(left, arguments.time_limit_s)
    if not launch(run, folder, limit_s, job, arguments.stall_limit_s, bool(arguments.calibrated)):
        print(f"{arguments.outcome}: is there already, of this run; nothing is trained", file=sys.stderr)
        renewal.restore([folder / renewal.FILE])
        return
    _tell_disturbance(run, folder)
    _tell_patterns(run, folder)
    set_aside(folder, arguments.extendable)
    renewal.make_at_end(folder)


def _tell_patterns(run: RunDefinition, folder: Path) -> None:
    """Name the patterns of a command that found nothing in what its program printed."""
    if not command.is_command(run.benchmark) or not (folder / "metrics.json").exists():
        return
    found = read_json(folder / "metrics.json")["program"]["metrics"]
    for name in (name for name, value in found.items() if value is None):
        pattern = run.benchmark["metrics"][name]
        print(f"metrics.{name}: {pattern!r} found no number in what the program printed; see its train.log",
              file=sys.stderr)  # fmt: skip


def _tell_disturbance(run: RunDefinition, folder: Path) -> None:
    limits = (machine.load_if_declared(run.machine["name"]) or {}).get("disturbance")
    found = disturbance.summarize_ended_run(folder)
    told = disturbance.list_reasons(found, limits)
    if told:
        print(f"disturbed: {'; '.join(told)}", file=sys.stderr)
    elif found and (why := disturbance.explain_unknown(found, limits)):
        print(f"perhaps disturbed: {why}", file=sys.stderr)


if __name__ == "__main__":
    exit_with_message(main)
