"""Start the ranks of one training run under the machine's launcher and record how it ended.

A run of a study: --study NAME --machine NAME --data-dir DIR --outcome results/.../outcome.json
A run made before, again: --run results/.../run.yaml --outcome /tmp/again/outcome.json
"""

import argparse
import os
import time
from pathlib import Path

import yaml

from study.core import configuration
from study.core.errors import StudyError, exit_with_message
from study.experiment import grid
from study.experiment.definition import fingerprint, run_definition
from study.instruments.heartbeats import LIMIT_S
from study.launch.launch import give_up, launch
from study.machines import queues


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", help="the study that has the run")
    parser.add_argument("--machine", help="the machine this is")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--run", type=Path, help="instead of these three, the run.yaml of an earlier run")
    parser.add_argument("--fingerprint", help="of the run that was planned; another one is refused")
    parser.add_argument("--time-limit-s", type=float, default=3600, help="seconds after which the run is ended")
    parser.add_argument("--stall-limit-s", type=float, default=LIMIT_S, help="seconds without progress, likewise")
    parser.add_argument("--jobs-lost", type=int, default=0, help="earlier jobs of this run that ended without a word")
    parser.add_argument("--outcome", required=True, type=Path, help="written last; its folder is emptied first")
    arguments = parser.parse_args()
    if arguments.outcome.name != "outcome.json":
        raise StudyError(f"--outcome: {arguments.outcome} must be named outcome.json, in a folder of its own")
    run = _earlier_run(arguments.run) if arguments.run else _run_of_study(arguments)
    if arguments.fingerprint not in (None, fingerprint(run)):
        raise StudyError("the configuration changed after this run was planned; start snakemake again")
    folder = arguments.outcome.parent
    if arguments.jobs_lost and give_up(run, folder, arguments.jobs_lost):
        return
    job = queues.job({**os.environ, **run["machine"]["environment"]})
    left = queues.seconds_left(job, time.time())  # so that a run's end is written down before its job's
    limit_s = arguments.time_limit_s if left is None else min(left, arguments.time_limit_s)
    launch(run, folder, limit_s, job, arguments.stall_limit_s)


def _earlier_run(path):
    try:
        run = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise StudyError(f"{path}: cannot be read as a run's YAML: {error}") from None
    given = run.get("parameters") if isinstance(run, dict) else None
    for name in grid.PARAMETERS:
        if not isinstance(given, dict) or name not in given:
            raise StudyError(f"{path}: parameters.{name} is missing: no run's definition, or an older version's")
    return run


def _run_of_study(arguments):
    machine = {"name": arguments.machine, **configuration.load_named("machines", arguments.machine)}
    directory = "/".join(arguments.outcome.parts[-len(grid.LEVELS) - 1 : -1])
    for run in grid.load_study(arguments.study).runs:
        if run.directory == directory:
            return run_definition(run, machine, arguments.data_dir)
    raise StudyError(f"config/studies/{arguments.study}.yaml has no run {directory}")


if __name__ == "__main__":
    exit_with_message(main)
