"""Show a study's progress: runs done, running and failed, with reasons. Only reads, so it is always safe."""

import argparse
import collections

from study.core import command_line, configuration
from study.core.errors import exit_with_message
from study.core.wording import counted
from study.experiment import earlier_attempts
from study.experiment.expansion import load_study
from study.instruments import disturbance
from study.machines.machine import is_on_launching_host, load
from study.records import attempts, run_states


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    arguments = command_line.parsed(parser)
    command_line.check_machine(arguments.machine, arguments.results_dir)
    on = earlier_attempts.asked_for(load(arguments.machine), configuration.settings())
    study = load_study(arguments.study, on)
    folder = f"{arguments.results_dir}/{arguments.machine}"
    found = run_states.of_runs(study.runs, folder)
    counts = collections.Counter(state for _, state, _ in found)
    told = ", ".join(f"{counts[state]} {state}" for state in run_states.STATES if counts[state])
    print(f"study {study.name} on {arguments.machine}: {counted(len(found), 'run')}: {told}")
    if study.loading:
        print(f"{run_states.loads_done(study.loading, folder)} of {len(study.loading)} loading measurements done")
    if is_on_launching_host(on):
        print("; ".join(disturbance.describe_machine()))
    for line in attempts.lines(attempts.due(study.runs, folder, on)):
        print(f"  {line}")
    for line in attempts.still_disturbed(study.runs, folder, on):
        print(f"  {line}")
    for run, state, why in found:
        if state in (*run_states.GOING_ON, "failed"):
            print(f"  {state}: {run.directory}{why}")


if __name__ == "__main__":
    exit_with_message(main)
