"""A thousand points through a batch system: the icpp2019 study's grid with a one-second stand-in for training.

Jobs are submitted to the stand-in for LSF of tests/clusters/. Snakemake is killed (SIGKILL, with all it started)
several times on the way and started again. Every point must then be recorded exactly once. Prints how long it took,
Snakemake's memory, and what a point costs beside its second of training; writes performance/load.csv.
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil
import yaml
from project import copy_of_project

from study.core import paths, signals
from study.experiment import expansion

ROOT = Path(__file__).resolve().parents[1]

SYNTHETIC = {"source": "synthetic", "train_samples": 500, "test_samples": 20, "features": 60, "seed": 1}
P1B3 = {"source": "synthetic", "train_samples": 60_000, "test_samples": 900, "features": 60, "seed": 1}
TRAINING_S = 1.0
LOOK_S = 0.5


class Load:
    """The project's copy with its study, the batch system's state, and Snakemake's memory and CPU time."""

    def __init__(self, folder, points, jobs):
        self.project = copy_of_project(folder / "project")
        self.state, self.jobs = folder / "state", jobs
        self.state.mkdir()
        self.runs, self.kills = self._write_study(points), 0
        self.points = len(self.runs)
        profile = self.project.root / "profiles" / "summit" / "config.yaml"
        profile.write_text(profile.read_text().replace("status-checks: 20", "status-checks: 2"))
        clusters = self.project.root / "tests" / "clusters"
        path = [clusters / "load", clusters / "lsf", Path(sys.executable).parent, os.environ["PATH"]]
        self.variables = {**self.project.variables, "STANDIN_STATE": str(self.state), "STANDIN_START_S": "0.1",
                          "STUDY_ACCOUNT": "ABC123", "PATH": os.pathsep.join(map(str, path))}  # fmt: skip
        self.peak_mb = self.cpu_s = 0.0

    def _write_study(self, points):
        """The icpp2019 study on synthetic data, with as many repeats as ``points`` need; returns its runs."""
        study = yaml.safe_load((self.project.root / "config" / "studies" / "icpp2019.yaml").read_text())
        study |= {"datasets": {name: P1B3 if name == "p1b3" else SYNTHETIC for name in study["datasets"]},
                  **dict.fromkeys(("figures", "loading", "findings", "further_results"), []),
                  "tables": ["scaling"]}  # fmt: skip
        study["runs"] = [grid for grid in study["runs"] if not grid.get("trace")]  # the stand-in writes no timeline
        runs, repeats = (), 0
        while len(runs) < points:
            repeats += 1
            for entry in study["runs"]:
                entry["repeats"] = repeats
            runs = expansion.expand_study("load", study, "load").runs
        self.project.add_study("load", yaml.safe_dump(study))
        return runs

    def line(self, *arguments):
        """Make Snakemake's command line."""
        program = Path(sys.executable).with_name("snakemake")
        return [program, "--profile", "profiles/summit", "--jobs", str(self.jobs), "--config", "study=load", *arguments]

    def outcomes(self):
        """Count the runs that have ended."""
        folder = self.project.root / "results" / "summit"
        return sum(Path(paths.locate_run(folder, run.directory), "outcome.json").exists() for run in self.runs)

    def run(self, until):
        """Run Snakemake until there are ``until`` outcomes, then SIGKILL its session; to its end with None."""
        with open(self.state.parent / "snakemake.log", "ab") as log:
            process = subprocess.Popen(
                self.line(), cwd=self.project.root, env=self.variables, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._watch(process, until)
        except BaseException:  # Ctrl-C, for example, which does not reach another session
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.wait()

    def _watch(self, process, until):
        """Measure Snakemake until it ends, and kill it as `run` says."""
        watched, cpu = psutil.Process(process.pid), 0.0
        while process.poll() is None:
            try:
                self.peak_mb = max(self.peak_mb, watched.memory_info().rss / 1e6)
                cpu = sum(watched.cpu_times()[:2])
            except psutil.NoSuchProcess:
                break
            ended = self.outcomes()
            print(f"\r{ended}/{self.points} points", end="", file=sys.stderr, flush=True)
            if until is not None and ended >= until:
                os.killpg(process.pid, signal.SIGKILL)
                self.kills += 1
                until = None
            time.sleep(LOOK_S)
        self.cpu_s += cpu


def main():
    """Read the command line, run it, check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000, help="at least so many")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8, help="in the queue at a time")
    arguments = parser.parse_args()
    signals.set_handlers(signals.exit_on_signal, signals.TERMINATING)  # so that it ends what it started
    with tempfile.TemporaryDirectory(prefix="load.") as folder:
        load, begun = Load(Path(folder), arguments.points, arguments.jobs), time.monotonic()
        for kill in range(1, arguments.kills + 1):
            load.run(until=load.points * kill // (arguments.kills + 1))
            subprocess.run(
                load.line("--unlock"), cwd=load.project.root, env=load.variables, capture_output=True, check=True
            )
        code = load.run(until=None)
        seconds = time.monotonic() - begun
        wrong = _list_problems(load, code, arguments.kills)
        _print_report(load, seconds, arguments, wrong)
    sys.exit(1 if wrong else 0)


def _list_problems(load, code, kills):
    """List what is wrong after the last start. kills: how many were wanted."""
    if load.kills < kills:
        return [f"Snakemake was killed {load.kills} times instead of {kills}: no outcome was seen in time"]
    if code:
        return [f"Snakemake's last start ended with exit code {code}", *_read_last_lines(load)]
    runs = pd.read_csv(paths.locate_study(load.project.root / "results" / "summit", "load") + "/runs.csv")
    calls = [json.loads(line) for line in (load.state / "calls").read_text().splitlines()]
    trained = collections.Counter(line[-1] for line in calls if line[0] == "jsrun")
    wrong = []
    if len(runs) != load.points or (runs["status"] != "ok").any() or runs["record"].duplicated().any():
        wrong.append(f"{len(runs)} rows of {load.points}, {(runs['status'] == 'ok').sum()} of them good")
    if len(trained) != load.points or set(trained.values()) != {1}:
        wrong.append(
            f"{len(trained)} points were trained, {sum(n > 1 for n in trained.values())} of them more than once"
        )
    return wrong


def _read_last_lines(load):
    """Read the last lines of Snakemake's log."""
    return (load.state.parent / "snakemake.log").read_text(errors="replace").splitlines()[-20:]


def _print_report(load, seconds, arguments, wrong):
    """Print the measurements, and write load.csv after a full load."""
    calls = [json.loads(line)[0] for line in (load.state / "calls").read_text().splitlines()]
    row = {
        "points": load.points, "kills": load.kills, "jobs_at_a_time": arguments.jobs, "cores": os.cpu_count(),
        "wall_s": round(seconds, 1),
        "wall_per_point_s": round(seconds / load.points, 3),
        "overhead_per_point_core_s": round(seconds * os.cpu_count() / load.points, 3),
        "snakemake_cpu_per_point_s": round(load.cpu_s / load.points, 3),
        "snakemake_peak_mb": round(load.peak_mb, 1),
        "submitted": calls.count("bsub"), "trained": calls.count("jsrun"), "each_recorded_once": not wrong,
    }  # fmt: skip
    print("\n" + "\n".join([*(f"{name}: {value}" for name, value in row.items()), *wrong]))
    if load.points >= 1000:
        pd.DataFrame([row]).to_csv(ROOT / "performance" / "load.csv", index=False)


if __name__ == "__main__":
    main()
