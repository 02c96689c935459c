"""A study of many points on four virtual nodes of a real Slurm, while strike after strike hits Slurm and Snakemake.

A stand-in of a few seconds trains in place of Horovod's ranks; Slurm, Snakemake and the study's own processes are
real. First an undisturbed study runs, then the same one under strikes. The seed fixes which strikes hit what, in which
order and after which pauses; it does not fix how far the study is by then. In the end every point must be recorded
exactly once, none good that was not trained to its end in that time, and the tables must be those of the undisturbed
study but for what is measured. Writes a row to performance/slurm_soak.csv.

The files are in a folder named after points and seed, in the system's temporary folder. An interrupted soak goes on
there; it is removed after a soak that passed.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commits
import pandas as pd
import psutil
import yaml
from project import Project, copy_of_project
from slurm_strikes import STRIKES
from verdict import NOT_COMPARED, is_measured
from virtual_slurm import MACHINE, VirtualSlurm

from study.core import number_types, ownership, paths, signals
from study.core.files import write_aside, write_json
from study.experiment import expansion

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "performance" / "slurm_soak.csv"
EPOCHS, RANKS = [1, 2, 3], [1, 2]
STUDY = {
    "description": "a soak",
    "datasets": {"nt3": {"source": "synthetic", "train_samples": 60, "test_samples": 20, "features": 60, "seed": 1}},
    "tables": ["scaling"],
}
# Columns of the tables that come from measured ones, or from which repeats one Snakemake has submitted.
DERIVED = {"speedup", "speedup_low", "speedup_high", "efficiency", "pairing"}
SILENCE_S, CREDENTIAL_S = 15, 10  # of the virtual Slurm
LOOK_S = 0.5
STARTS = 5  # of Snakemake that fail, before a soak gives up; four times as many under strikes
QUIET_S = 120  # after the study's end, within which all jobs and processes have ended


class Soak:
    """The folder of one soak: its Slurm, and the two copies of the project."""

    def __init__(self, folder, points, seed, options):
        self.folder, self.points, self.seed, self.options = folder, points, seed, options
        folder.mkdir(exist_ok=True)
        os.close(ownership.open_own(folder, os.O_RDONLY | os.O_DIRECTORY))  # what is in it is run
        self.strikes, self.undoings, self.snakemake, self.shown = self._read_earlier_strikes(), [], None, None
        self.trained = folder / "trained.jsonl"  # what the ranks note
        self.slurm = VirtualSlurm(folder / "slurm", silence_s=SILENCE_S, credential_s=CREDENTIAL_S)
        self.slurm.stop()  # that of an interrupted soak, and its Snakemake
        for process in _list_processes(folder):
            process.kill()
        shutil.rmtree(self.slurm.folder, ignore_errors=True)
        self.variables = {
            **self.slurm.variables,
            "SOAK_LOG": str(self.trained), "SOAK_TRAINING_S": str(options.training_s),
            "STUDY_ACCOUNT": "test", "PATH": f"{Path(sys.executable).parent}:{self.slurm.variables['PATH']}",
        }  # fmt: skip

    def _read_earlier_strikes(self):
        """Read the strikes of an interrupted soak."""
        file = self.folder / "strikes.json"
        return json.loads(file.read_text()) if file.exists() else []

    def make_study(self, name):
        """Make a copy of the project with the study, once; returns it and the study's runs."""
        project, copied = Project(self.folder / name), self.folder / f"{name}.copied"
        text = yaml.safe_dump({**STUDY, "runs": [_make_grid(self.points)]})
        if not copied.exists():
            shutil.rmtree(project.root, ignore_errors=True)
            copy_of_project(project.root)
            project.add_study("soak", text)
            shutil.copy2(ROOT / "tests" / "clusters" / "soak" / "train.py", project.root / "scripts" / "train.py")
            project.change("profiles/slurm/config.yaml", "latency-wait: 60", "latency-wait: 10")
            project.change("profiles/slurm/config.yaml", "status-checks: 20", "status-checks: 4")
            copied.touch()
        (project.root / "config" / "machines" / "virtual.yaml").write_text(MACHINE)
        return project, expansion.expand_study("soak", yaml.safe_load(text), "soak").runs

    def make_line(self, *arguments):
        """Make Snakemake's command line."""
        return [
            Path(sys.executable).with_name("snakemake"), "--profile", "profiles/slurm", "--jobs",
            str(self.options.jobs), "--config", "study=soak", "machine=virtual", *arguments,
        ]  # fmt: skip

    def start(self, project):
        """Start Snakemake, after removing the lock of a killed one."""
        variables = {**self.variables, "PYTHONPATH": project.variables["PYTHONPATH"]}
        subprocess.run(self.make_line("--unlock"), cwd=project.root, env=variables, capture_output=True)
        with open(self.folder / f"{project.root.name}.log", "ab") as log:
            self.snakemake = subprocess.Popen(
                self.make_line(), cwd=project.root, env=variables, stdout=log, stderr=log, start_new_session=True
            )

    def run_undisturbed(self):
        """Run the undisturbed study, if it has not run; returns its results folder."""
        project, runs = self.make_study("undisturbed")
        notes_file = self.folder / "trained_undisturbed.jsonl"
        if not notes_file.exists():
            self.run_to_the_end(project, runs)
            self.trained.replace(notes_file)
        return _get_study_folder(project)

    def run_to_the_end(self, project, runs):
        """Start Snakemake, again if it fails, until all is made; raises `SystemExit` if that does not help."""
        for starts in itertools.count():
            self.give_up_after(starts, STARTS, project)
            self.start(project)
            while self.snakemake.poll() is None:
                self.show(project, runs)
                time.sleep(LOOK_S)
            if self.snakemake.returncode == 0:
                return

    def give_up_after(self, starts, most, project):
        """Raise `SystemExit` if Snakemake was started so often in vain."""
        if starts >= most:
            last = (self.folder / f"{project.root.name}.log").read_text(errors="replace").splitlines()[-30:]
            sys.exit("\n".join([f"Snakemake failed {starts} times:", *last, f"kept: {self.folder}"]))

    def run_disturbed(self, project, runs):
        """Run the study under strikes until so few points are left that a strike would miss; then undo all."""
        chance = random.Random(f"{self.seed} {len(self.strikes)}")  # noqa: S311  it keeps no secret
        self.start(project)
        due = time.monotonic() + chance.expovariate(1 / self.options.pause_s)
        starts, before = 0, 0
        while (ended := self.show(project, runs)) < len(runs) - self.options.jobs:
            starts, before = (starts, before) if ended == before else (0, ended)
            if self.snakemake.poll() is not None:
                starts += 1
                self.give_up_after(starts, 4 * STARTS, project)
                self.start(project)
            if time.monotonic() >= due:
                self.strike(chance, ended)
                due = time.monotonic() + chance.expovariate(1 / self.options.pause_s)
            self.undo(time.monotonic())
            time.sleep(LOOK_S)
        self.undo_all()
        while self.snakemake.poll() is None:
            self.show(project, runs)
            time.sleep(LOOK_S)

    def strike(self, chance, ended):
        """Make one strike, to be undone after a time that is shorter or longer than Slurm's patience."""
        kind = chance.choice(sorted(self.options.kinds))
        lasts_s = chance.uniform(0.2, 2.5) * SILENCE_S
        struck = STRIKES[kind](self, chance)
        target, undoing = struck or ("nothing was there", None)
        if undoing:
            self.undoings.append((time.monotonic() + lasts_s, undoing))
        self.strikes.append({"strike": kind, "what": target, "hit": struck is not None, "points": ended})
        write_json(self.folder / "strikes.json", self.strikes)
        lasting = f", for {lasts_s:.0f} s" if undoing else ""
        print(f"{time.strftime('%H:%M:%S')} strike {len(self.strikes)}: {kind}: {target}{lasting}", flush=True)

    def undo(self, now):
        """Undo the strikes that are due; those that Slurm does not answer to stay for the next time."""
        for each in [each for each in self.undoings if each[0] <= now]:
            if each[1]() is not False:
                self.undoings.remove(each)

    def undo_all(self):
        """Undo all, as far as Slurm answers in time."""
        deadline = time.monotonic() + QUIET_S
        while self.undoings and time.monotonic() < deadline:
            self.undo(float("inf"))
            time.sleep(LOOK_S)

    def stop(self):
        """End Snakemake and Slurm. Slurm has to answer until Snakemake has ended its jobs."""
        self.undo_all()
        if self.snakemake and self.snakemake.poll() is None:
            self.snakemake.terminate()
            try:
                self.snakemake.wait(QUIET_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.snakemake.pid, signal.SIGKILL)
                self.snakemake.wait()
        self.slurm.stop()

    def show(self, project, runs):
        """Show the progress; returns how many runs have ended."""
        results = project.root / "results" / "virtual"
        ended = sum(Path(paths.locate_run(results, run.directory), "outcome.json").exists() for run in runs)
        if self.shown != (project.root.name, ended):
            self.shown = (project.root.name, ended)
            print(f"{time.strftime('%H:%M:%S')} {project.root.name}: {ended} of {len(runs)} points", flush=True)
        return ended

    def list_leftovers(self):
        """List jobs and processes of the soak that are still there after a while."""
        deadline, leftovers = time.monotonic() + QUIET_S, ["?"]
        while leftovers and time.monotonic() < deadline:
            leftovers = [f"job {job} is {state}" for job, state in self.slurm.jobs()]
            leftovers += [f"process {process.pid} is left" for process in _list_processes(self.folder / "disturbed")]
            time.sleep(LOOK_S)
        return leftovers


def _make_grid(points):
    """Make the grid of a study of at least ``points`` points."""
    repeats = -(-points // (len(EPOCHS) * len(RANKS)))
    return {"benchmark": "nt3", "scaling": "weak", "epochs": EPOCHS, "gpus": RANKS, "loader": "npy", "repeats": repeats}


def _get_study_folder(project):
    """Return the results folder of the study in a copy of the project."""
    return Path(paths.locate_study(project.root / "results" / "virtual", "soak"))


def _list_processes(folder):
    """Yield the processes whose working directory is a folder or below it."""
    for process in psutil.process_iter(["cwd"]):
        if folder in Path(process.info["cwd"] or "/", "below").parents:
            yield process


def list_records(runs):
    """List the names of the runs' records, as in the tables."""
    return [paths.locate_record("", run.directory).lstrip("/") for run in runs]


def list_problems(expected, runs, trained):
    """List what is wrong with the records.

    expected: the records' names. runs: the table of all runs. trained: what the ranks noted, in any order.
    """
    counts = collections.Counter(runs["record"])
    wrong = [f"{name}: recorded {counts[name]} times" for name in expected if counts[name] != 1]
    wrong += [f"{name}: recorded, though it is no point" for name in counts if name not in set(expected)]
    whole = list_trainings(trained)
    for run in runs.itertuples():
        name = str(Path(run.record).parent)
        begun, ended = run.started_wall_ns, run.started_wall_ns + run.runtime_s * 1e9
        within = [each for each in whole.get(name, []) if begun <= each.begun and each.ended <= ended]
        of_ranks = [sum(each.rank == rank for each in within) for rank in range(run.gpus)]
        if run.status == "ok" and set(of_ranks) != {1}:
            wrong.append(f"{name}: good, but {of_ranks} trainings of its ranks came to their end in that time")
        if run.status != "ok" and run.failure_kind != "killed":
            wrong.append(f"{name}: failed, {run.failure_kind}: {run.failure_message}")
    for name, all_of_it in whole.items():
        ordered = sorted(all_of_it, key=lambda each: (each.rank, each.begun))
        pairs = zip(ordered, ordered[1:], strict=False)
        if any(later.begun < earlier.ended for earlier, later in pairs if earlier.rank == later.rank):
            wrong.append(f"{name}: two jobs trained it at the same time")
    return wrong


@dataclasses.dataclass(frozen=True)
class Training:
    """One rank's training from its begin to its end, both in ns."""

    rank: int
    begun: int
    ended: int


def list_trainings(trained):
    """List {run: finished trainings}; a requeued job has the same id, so an end belongs to the last begin."""
    begun, by_run = {}, collections.defaultdict(list)
    for note in sorted(trained, key=lambda note: note["wall_ns"]):
        run, rank = note["run"].split("results/virtual/")[-1], note["rank"]
        key = (run, note["job"], rank)
        if note["kind"] == "begin":
            begun[key] = note["wall_ns"]
        else:
            by_run[run].append(Training(rank, begun.pop(key), note["wall_ns"]))
    return dict(by_run)


def list_wrong_tables(made, reference):
    """List differences from the undisturbed study's tables, but in what is measured. Both are folders."""
    wrong = []
    for path in sorted(reference.rglob("*.csv")):
        mine = made / path.relative_to(reference)
        if not mine.exists():
            wrong.append(f"{path.name} is missing")
            continue
        ours, theirs = (_read_comparable(each) for each in (mine, path))
        if list(ours.columns) != list(theirs.columns) or len(ours) != len(theirs):
            wrong.append(f"{path.name} has {len(ours)} rows, the undisturbed one {len(theirs)}, or other columns")
            continue
        wrong += [f"{path.name}: {name} differs" for name in theirs if not ours[name].equals(theirs[name])]
    return wrong


def _read_comparable(path):
    """Read the columns of a table that do not depend on measurements."""
    table = pd.read_csv(path) if path.read_text().strip() else pd.DataFrame()
    table = table[[name for name in table if not (is_measured(name) or name in NOT_COMPARED | DERIVED)]]
    return table.sort_values(list(table.columns)[:1]).reset_index(drop=True) if len(table.columns) else table


def run_soak(soak):
    """Run the soak, undisturbed and under strikes, and check it; returns the table's row."""
    begun = time.monotonic()
    reference = soak.run_undisturbed()
    project, runs = soak.make_study("disturbed")
    soak.run_disturbed(project, runs)
    soak.run_to_the_end(project, runs)
    notes = [json.loads(line) for line in soak.trained.read_text().splitlines()]
    table = pd.read_csv(_get_study_folder(project) / "runs.csv")
    wrong = list_problems(list_records(runs), table, notes) + soak.list_leftovers()
    lost = table[table["status"] != "ok"]
    for record in lost["record"]:  # recorded as lost, twice struck: the user deletes the folder and starts again
        shutil.rmtree((project.root / "results" / "virtual" / record).parent)
    if len(lost):
        soak.run_to_the_end(project, runs)
    wrong += list_wrong_tables(_get_study_folder(project), reference)
    hits = collections.Counter(each["strike"] for each in soak.strikes if each["hit"])
    whole = list_trainings(notes)
    return {
        "points": len(runs), "seed": soak.seed, "strikes": sum(hits.values()),
        "missed": sum(not each["hit"] for each in soak.strikes),
        "of_kinds": "; ".join(f"{number} {name}" for name, number in sorted(hits.items())),
        "recorded_lost": len(lost), "begun": sum(note["kind"] == "begin" and not note["rank"] for note in notes),
        "trained_to_the_end": sum(not each.rank for all_of_it in whole.values() for each in all_of_it),
        "outcome": "FAIL" if wrong else "pass",
        "wrong": "; ".join(wrong)[:2000], "minutes": round((time.monotonic() - begun) / 60, 1),
        "commit": commits.describe_commit(), "host": platform.node(),
    }  # fmt: skip


def write_row(row):
    """Write a row into the table, in place of one of the same points and seed."""
    rows = pd.read_csv(TABLE, keep_default_na=False).to_dict("records") if TABLE.exists() else []
    rows = [each for each in rows if (each["points"], each["seed"]) != (row["points"], row["seed"])] + [row]
    with write_aside(TABLE) as aside:
        pd.DataFrame(sorted(rows, key=lambda each: (each["points"], each["seed"])), columns=list(row)).to_csv(
            aside, index=False
        )


def parse_options(arguments=None):
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=number_types.parse_count, default=300, help="at least so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=number_types.parse_count, default=4, help="in the queue at a time")
    parser.add_argument("--pause-s", type=float, default=20, help="mean time between two strikes")
    parser.add_argument("--training-s", type=float, default=3, help="time that the stand-in for training takes")
    parser.add_argument("--kinds", nargs="+", choices=sorted(STRIKES), default=sorted(STRIKES), help="of strikes")
    return parser.parse_args(arguments)


def main():
    """Read the command line and do it."""
    parsed = parse_options()
    signals.set_handlers(signals.exit_on_signal, signals.TERMINATING)  # so that it ends what it started
    folder = Path(tempfile.gettempdir()).resolve() / f"soak-{parsed.points}-{parsed.seed}"
    soak = Soak(folder, parsed.points, parsed.seed, parsed)
    try:
        soak.slurm.start()
        row = run_soak(soak)
    finally:
        soak.stop()
    write_row(row)
    print("\n" + "\n".join(f"{name}: {value}" for name, value in row.items()))
    if row["outcome"] == "pass":
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    sys.exit(row["outcome"] != "pass")


if __name__ == "__main__":
    main()
