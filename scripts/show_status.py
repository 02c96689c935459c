"""Show a study's progress: runs done, running and failed, with reasons. Only reads, so it is always safe.

With --openmetrics it prints the numbers in the OpenMetrics format, with the phase, epoch, power and energy of the runs
that go on, or of the last one.
"""

import argparse
import collections
import time
from pathlib import Path

from study.core import checked, command_line, paths
from study.core.errors import StudyError, exit_with_message
from study.core.wording import counted
from study.experiment.expansion import load_study
from study.instruments import machine_state
from study.instruments.heartbeats import LONGEST_INTERVAL_S
from study.machines.machine import load, trains_on_launching_host
from study.records import attempts, checks
from study.records.record import read_record
from study.report.exports import openmetrics

STATES = ("done", "running", "silent", "failed", "to do")
SILENT_S = 3 * LONGEST_INTERVAL_S  # without a heartbeat: a run that makes progress sends one more often


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    parser.add_argument("--openmetrics", action="store_true", help="as text that Prometheus and others read")
    arguments = command_line.parsed(parser)
    command_line.check_machine(arguments.machine, arguments.results_dir)
    on = load(arguments.machine)
    study = load_study(arguments.study, on)
    folder = f"{arguments.results_dir}/{arguments.machine}"
    found = [(run, *_state(Path(paths.run_folder(folder, run.directory)))) for run in study.runs]
    counts = collections.Counter(state for _, state, _ in found)
    measured = sum(Path(paths.loading(folder, entry.directory)).exists() for entry in study.loading)
    if arguments.openmetrics:
        states = {state: counts[state] for state in STATES}
        runs = [(run.directory, state, paths.run_folder(folder, run.directory)) for run, state in _shown(found, folder)]
        loads = measured, len(study.loading)
        print(openmetrics.text(study.name, arguments.machine, states, loads, runs), end="")
        return
    told = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    print(f"study {study.name} on {arguments.machine}: {counted(len(found), 'run')}: {told}")
    if study.loading:
        print(f"{measured} of {len(study.loading)} loading measurements done")
    if trains_on_launching_host(on):
        print("; ".join(machine_state.lines()))
    for line in attempts.lines(attempts.due(study.runs, folder, on)):
        print(f"  {line}")
    for line in attempts.still_disturbed(study.runs, folder, on):
        print(f"  {line}")
    for run, state, why in found:
        if state in ("running", "silent", "failed"):
            print(f"  {state}: {run.directory}{why}")


def _shown(found, folder):
    """(run, state) of those that go on; without any, of the one that ended last; none if no run has ended."""
    on = [(run, state) for run, state, _ in found if state in ("running", "silent")]
    ended = [(run, state) for run, state, _ in found if state in ("done", "failed")]
    when = {run: Path(paths.outcome(folder, run.directory)).stat().st_mtime for run, _ in ended}
    return on or sorted(ended, key=lambda each: when[each[0]])[-1:]


def _state(folder):
    """(state, details) of a run's directory; states are done, running, silent, failed and to do."""
    outcome = folder / "outcome.json"
    if outcome.exists():
        record = folder / "record.json"  # made from the outcome; it also has what the run's checks found
        is_made = record.exists() and record.stat().st_mtime >= outcome.stat().st_mtime
        ended = read_record(record) if is_made else checked.load_json(outcome, "outcome")
        if ended["status"] == "ok":
            return "done", ""
        failure = ended["failure"]
        phase = f" in {failure['phase']}" if failure["phase"] else " before the first phase"
        phase = "" if failure["kind"] == checks.KIND else phase
        where = f" on {failure['host']}" if failure.get("host") and _hosts(folder) else ""
        return "failed", f": {failure['kind']}{phase}{where}: {failure['message']}"
    if not (folder / "ranks").exists():
        return "to do", ""
    hosts = _hosts(folder)
    where = f" on {hosts}" if hosts else ""
    silent = time.time() - max(path.stat().st_mtime for path in [folder / "ranks", *(folder / "ranks").iterdir()])
    if silent > SILENT_S:
        return "silent", f"{where}: no heartbeat for {silent:.0f} s; it was stopped, or it waits or hangs"
    return "running", where


def _hosts(folder):
    """The hosts of a run on a machine that lists hosts; else an empty string."""
    try:
        facts = checked.load_json(folder / "provenance.json", "provenance")
    except StudyError:  # not written yet
        return ""
    return ", ".join(host["name"] for host in facts.get("hosts", []))


if __name__ == "__main__":
    exit_with_message(main)
