"""The study through batch systems: stand-ins that refuse what the real ones refuse, and that really run the jobs.

The machines' files are as shipped but for their GPUs, which are not here. See tests/clusters/standin.py.
"""

import contextlib
import json
import math
import os
import re
import signal
import subprocess

import fork_server
import pandas as pd
import psutil
import pytest
from project import BIN, FOR_EVER, ROOT, WAIT_S, wait_for

ONE_RUN = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 2, loader: npy}
tables: [scaling]
"""
# Each way of starting things through a batch system once: a run, and a measurement on one node.
ONE_OF_EACH = (
    ONE_RUN.replace("[scaling]", "[scaling, icpp2019_table3]")
    + "loading:\n  - {benchmark: nt3, loader: [read_csv, npy], repeats: 1}\n"
)
# A program instead of training: what batch systems and Snakemake do with a run does not depend on what it computes.
PROGRAM = """
title: A program of milliseconds
kind: command
command: [python, program.py]
work: fixed
code: [program.py]
workload: {train_samples: 1}
epochs: {strong: 1, weak: 1}
"""
ONE_PROGRAM = """
description: a test
runs:
  - {benchmark: program, scaling: weak, gpus: 2}
tables: [scaling]
"""
MEETS_THE_OTHER = """import os, pathlib, time
folder = pathlib.Path(os.environ["STUDY_RUN_FOLDER"])
(folder / ("rank" + os.environ["RANK"])).touch()
deadline = time.monotonic() + 120
while not all((folder / name).exists() for name in ("rank0", "rank1")):
    assert time.monotonic() < deadline, os.environ["WORLD_SIZE"]
    time.sleep(0.1)
"""
SITES = {"lsf": ("summit", "summit"), "cobalt": ("theta", "theta_debug"), "pbs": ("pbs", "polaris"),
         "flux": ("flux", "tuolumne")}  # fmt: skip


class Site:
    """A copy of the project on a machine whose batch system is a stand-in."""

    def __init__(self, project, folder, scheduler, **variables):
        self.project, self.state = project, folder / "state"
        self.state.mkdir()
        self.profile, self.machine = SITES[scheduler]
        path = f"{ROOT / 'tests' / 'clusters' / scheduler}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}"
        settings = {"STANDIN_STATE": self.state, "STANDIN_FORGET_S": 5, "STUDY_GRACE_S": 3, "STUDY_SUBMIT_PAUSE_S": 0.1}
        self.variables = {**project.variables, "STUDY_ACCOUNT": "ABC123", "PATH": path}
        self.variables |= {name: str(value) for name, value in {**settings, **variables}.items()}
        machine = project.root / "config" / "machines" / f"{self.machine}.yaml"
        machine.write_text(machine.read_text().replace("gpus_per_rank: 1", "gpus_per_rank: 0"))
        for old, new in (("status-checks: 20", "status-checks: 1"), ("latency-wait: 60", "latency-wait: 10")):
            project.change(f"profiles/{self.profile}/config.yaml", old, new)
        project.add_study("one", ONE_RUN)
        project.add_study("each", ONE_OF_EACH)

    def line(self, study, *arguments):
        config = [f"study={study}", f"machine={self.machine}"]
        return [BIN / "snakemake", "--profile", f"profiles/{self.profile}", *arguments, "--config", *config]

    def snakemake(self, study, *arguments):
        return fork_server.run(self.line(study, *arguments)[1:], self.project.root, self.variables, WAIT_S)

    def runs_alone(self, study):
        """The arguments of `snakemake` for a study's runs and their table, without the other tables and the report."""
        return study, f"results/{self.machine}/studies/{study}/runs.csv"

    def start(self, study, *arguments):
        with open(self.state / "snakemake.log", "w") as log:
            return subprocess.Popen(
                self.line(study, *arguments),
                cwd=self.project.root,
                env=self.variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run behind an &
            )

    def add_program(self, study, text, code):
        """A study of a program: ``code``, lines of Python that each rank does."""
        (self.project.root / "config" / "benchmarks" / "program.yaml").write_text(PROGRAM)
        (self.project.root / "program.py").write_text(code)
        self.project.add_study(study, text)

    def calls(self, command):
        file = self.state / "calls"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if line[0] == command]

    def fault(self, **times):
        (self.state / "faults").write_text(json.dumps(times))

    def hold(self):
        """Let no job start before `release`."""
        (self.state / "hold").touch()

    def release(self):
        (self.state / "hold").unlink()

    def reach_walltime(self):
        """Have all jobs ended as at their walltime."""
        for job in self.state.glob("*.job"):
            job.with_suffix(".over").touch()

    def said(self):
        """The last that a Snakemake of `start` said."""
        return (self.state / "snakemake.log").read_text()[-3000:]

    def log(self):
        """What the ranks have said."""
        said = ""
        for path in self.results.rglob("train.log"):
            with contextlib.suppress(OSError):  # removed for the next attempt
                said += path.read_text()
        return said

    def said_by_jobs(self):
        """What the batch jobs have said, that of runs and what started them."""
        return "".join(path.read_text() for path in self.project.root.glob(".cluster/*/job.output"))

    @property
    def results(self):
        return self.project.root / "results" / self.machine

    @property
    def made(self):
        """What was made for the one study that was run."""
        (folder,) = (self.results / "studies").iterdir()
        return folder

    def runs(self):
        return pd.read_csv(self.made / "runs.csv")


@pytest.fixture
def site(project, tmp_path):
    """``site("lsf", STANDIN_ANSWER_S=2, ...)``; the data of its runs are there, converted."""
    return lambda scheduler, **variables: Site(project, tmp_path, scheduler, **variables)


@pytest.fixture
def program_site(fresh, tmp_path):
    """``program_site("lsf", code, STANDIN_ANSWER_S=2, ...)``: the study ``one`` is of a program, and has no data."""

    def make(scheduler, code="", **variables):
        there = Site(fresh, tmp_path, scheduler, **variables)
        there.add_program("one", ONE_PROGRAM, code)
        return there

    return make


@pytest.mark.parametrize(
    ("scheduler", "submit", "launcher"),
    [("lsf", "bsub", "jsrun"), ("cobalt", "qsub", "aprun"),
     pytest.param("pbs", "qsub", "mpiexec", marks=pytest.mark.long),
     pytest.param("flux", "flux-batch", "flux-run", marks=pytest.mark.long)],
)  # fmt: skip
def test_a_study_from_end_to_end(fresh, tmp_path, scheduler, submit, launcher):
    there = Site(fresh, tmp_path, scheduler)
    script = "scripts/train.py"
    if scheduler != "lsf":  # which trains
        grid = ONE_OF_EACH.replace("benchmark: nt3, scaling: weak, epochs: 1, gpus: 2, loader: npy", "GRID")
        there.add_program("each", grid.replace("GRID", "benchmark: program, scaling: weak, gpus: 2"), MEETS_THE_OTHER)
        script = "scripts/run_command.py"
    done = there.snakemake("each", "--jobs", "1" if scheduler != "lsf" else "2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = there.runs()
    assert runs.status.tolist() == ["ok"], runs.failure_message.tolist()
    assert len(there.calls(submit)) == 1 + 1, "a run and a loading measurement, nothing run twice"
    assert "Building DAG" not in there.said_by_jobs(), "a job starts its own command, not a Snakemake"
    started = [" ".join(line) for line in there.calls(launcher)]
    assert sum(script in line for line in started) == 1
    on_a_node = 1 if launcher in ("jsrun", "aprun") else 0  # elsewhere the job's script is on a node itself
    assert sum("measure_loading.py" in line for line in started) == on_a_node == len(started) - 1
    assert (there.made / "tables" / "icpp2019_table3.md").exists()
    for record in runs.record:
        provenance = json.loads((there.results / record).with_name("provenance.json").read_text())
        assert provenance["launch_line"][0] == launcher.removesuffix("-run")
    again = there.snakemake("each")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_without_an_account_nothing_is_submitted(program_site):
    there = program_site("lsf", STUDY_ACCOUNT="")
    done = there.snakemake("one")
    assert done.returncode == 1
    assert "name the account or project" in done.stderr
    assert "Traceback" not in done.stderr
    assert there.calls("bsub") == []


def test_a_run_that_a_queue_rule_forbids_is_refused_before_anything(program_site):
    there = program_site("cobalt")
    there.project.append("config/machines/theta_debug.yaml", "launcher: mpiexec\n")
    there.project.change(
        "config/machines/theta_debug.yaml", "longest_minutes:", "smallest_nodes: 4\n  longest_minutes:"
    )
    plan = there.snakemake("one", "-n")
    assert plan.returncode == 0
    assert "queue.smallest_nodes: a run of 2 ranks has 2 nodes; a job must have at least 4" in plan.stderr
    assert there.snakemake("one").returncode == 1
    assert there.calls("qsub") == []


@pytest.mark.long
def test_a_run_whose_jobs_are_killed_in_the_middle_is_recorded_after_the_second(site):
    """Nothing may look whole, nothing is lost: the third job trains no more, it writes the failure down."""
    there = site("lsf")
    there.project.add_study("one", ONE_RUN.replace("epochs: 1", "epochs: 2"))
    there.project.hold_training(after=1)
    study = there.start("one")
    try:
        for number in (1, 2):
            wait_for(lambda n=number: len(there.calls("jsrun")) == n and "epoch 1/" in there.log(), study)
            there.reach_walltime()
        assert study.wait(WAIT_S) == 0, there.said()
    finally:
        _kill(study)
    run = there.runs().iloc[0]
    assert (run.status, run.failure_kind) == ("failed", "killed")
    assert "was lost (no exit status)" in run.failure_message
    assert (len(there.calls("bsub")), len(there.calls("jsrun"))) == (3, 2)
    wait_for(lambda: _processes_of(there) == [])
    assert "Nothing to be done" in there.snakemake("one").stderr


def test_a_run_too_long_for_its_job_is_recorded_before_the_job_ends(program_site):
    """What a run may take is less than its job has left: the record says timeout."""
    there = program_site("lsf", FOR_EVER)
    script = there.project.root / "scripts" / "study" / "machines" / "queues.py"
    script.write_text(re.sub(r"LAST_S = 90 ", "LAST_S = 120 * 60 - 15 ", script.read_text()))  # leaves 15 of 7200 s
    there.snakemake(*there.runs_alone("one"))
    run = there.runs().iloc[0]
    assert (run.status, run.failure_kind) == ("failed", "timeout")
    assert run.failure_message == "the run reached its time limit and was ended"
    assert run.runtime_s < 60, "a quarter of a minute, not what the machine's file allows a run"
    assert len(there.calls("bsub")) == 1, "the job itself ended well"


@pytest.mark.long
def test_a_job_that_vanishes_runs_again(site):
    there = site("lsf")
    there.hold()
    study = there.start("one")
    try:
        wait_for(lambda: there.calls("bjobs"), study)
        for process in psutil.process_iter(["cmdline"]):
            if "standin.py" in " ".join(process.info["cmdline"] or []) and str(there.state) == _state_of(process):
                process.kill()
        for job in there.state.glob("*.job"):
            job.unlink()
        there.release()
        assert study.wait(WAIT_S) == 0, there.said()
    finally:
        _kill(study)
    assert there.runs().status.tolist() == ["ok"]
    assert (len(there.calls("bsub")), len(there.calls("jsrun"))) == (2, 1)


PACKED = ONE_PROGRAM.replace("gpus: 2", "gpus: [1, 2], repeats: 2")

# A run waits for the other one of as many ranks; one that were to run after it would find it gone.
MEETING = """import os, pathlib, time, zlib
place = pathlib.Path("{folder}", os.environ["WORLD_SIZE"])
place.mkdir(parents=True, exist_ok=True)
(place / str(zlib.crc32(os.environ["STUDY_RUN_FOLDER"].encode()))).touch()
deadline = time.monotonic() + 120
while len(list(place.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.1)
"""


def test_small_runs_share_a_batch_job(program_site, tmp_path):
    """Theta's queue takes no job below 128 nodes: two runs of one node and two of two nodes are two jobs, not four."""
    there = program_site("cobalt")
    there.machine = "theta"
    there.add_program("packed", PACKED, MEETING.format(folder=tmp_path / "begun"))
    done = there.snakemake(*there.runs_alone("packed"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "4 of them share 2 jobs" in done.stderr
    assert there.runs().status.tolist() == ["ok"] * 4
    submitted = there.calls("qsub")
    assert [line[line.index("-n") + 1] for line in submitted] == ["128", "128"]
    assert len(there.calls("aprun")) == 4
    for ranks in (1, 2):
        both = [_window(there.results / record) for record in there.runs().query(f"gpus == {ranks}").record]
        assert max(begin for begin, _ in both) < min(end for _, end in both), "packed runs are at work at one time"


TWO_LENGTHS = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 1, loader: npy, walltime_minutes: 20}
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 1, loader: npy, walltime_minutes: 40}
tables: [scaling]
"""


@pytest.fixture
def packed(site):
    """(site, study) of `TWO_LENGTHS`, begun and packed into one job; one of its runs is held after its first epoch."""
    there = site("cobalt")
    there.machine = "theta"
    there.project.add_study("packed", TWO_LENGTHS)
    there.project.hold_training(after=1)
    study = there.start("packed")
    yield there, study
    _kill(study)


@pytest.mark.long
def test_a_lost_job_of_packed_runs_is_submitted_once_more_for_those_that_had_not_ended(packed):
    """Its walltime is the longest of its runs'. Another walltime later repeats nothing."""
    there, study = packed
    wait_for(lambda: list(there.results.glob("runs/*/*/*/outcome.json")) and "epoch 1/2" in there.log(), study)
    (ended,) = there.results.glob("runs/*/*/*/outcome.json")
    outcome = ended.read_bytes()
    there.reach_walltime()
    wait_for(lambda: len(there.calls("qsub")) == 2, study)
    there.project.release_training()
    assert study.wait(WAIT_S) == 0, there.said()
    assert there.runs().status.tolist() == ["ok"] * 2
    assert ended.read_bytes() == outcome, "it did not train again"
    assert (len(there.calls("qsub")), len(there.calls("aprun"))) == (2, 2 + 1)
    assert [line[line.index("-t") + 1] for line in there.calls("qsub")] == ["40", "40"]
    there.project.add_study("packed", TWO_LENGTHS.replace("40", "50").replace("20}", "25}"))
    again = there.snakemake("packed")
    assert "Nothing to be done" in again.stdout + again.stderr
    assert len(there.calls("qsub")) == 2


@pytest.mark.long
def test_a_run_that_reaches_a_walltime_that_was_only_estimated_runs_again_with_more(site):
    """The second repeat may take 1.5 times as long as the first one did; it is held until that has passed."""
    there = site("lsf")
    there.project.change("scripts/study/experiment/walltimes.py", "LEAST_S = 300", "LEAST_S = 5")
    there.project.hold_training(after=0)
    there.project.release_training()
    assert there.snakemake("one").returncode == 0
    (took_s,) = there.runs().runtime_s
    there.project.hold_training(after=0)
    there.project.add_study("one", ONE_RUN.replace("loader: npy", "loader: npy, repeats: 2"))
    study = there.start("one")
    try:
        wait_for(lambda: list(there.results.rglob("timed_out.json")), study)
        wait_for(lambda: len(there.calls("bsub")) == 3, study)
        there.project.release_training()
        assert study.wait(WAIT_S) == 0, there.said()
    finally:
        _kill(study)
    runs = there.runs()
    assert runs.status.tolist() == ["ok", "ok"], runs.failure_message.tolist()
    estimated = math.ceil(1.5 * took_s / 60) + 5
    assert [_minutes(line[line.index("-W") + 1]) for line in there.calls("bsub")] == [120, estimated, 120]
    assert list(there.results.rglob("timed_out.json")) == []


def _minutes(walltime):
    """Of LSF's [hours:]minutes."""
    hours, _, minutes = walltime.rpartition(":")
    return 60 * int(hours or 0) + int(minutes)


def _window(record):
    outcome = json.loads(record.with_name("outcome.json").read_text())
    begun = outcome["started_wall_ns"]
    return begun, begun + outcome["runtime_s"] * 1e9


def test_snakemake_killed_and_started_again_finds_its_jobs_in_the_queue(program_site):
    there = program_site("lsf")
    there.hold()
    study = there.start("one")
    wait_for(lambda: there.calls("bjobs"), study)
    _kill(study)
    unlocked = there.snakemake("one", "--unlock")
    assert unlocked.returncode == 0
    asked = len(there.calls("bjobs"))
    study = there.start("one")
    try:
        wait_for(lambda: len(there.calls("bjobs")) > asked, study)
        there.release()
        assert study.wait(WAIT_S) == 0, there.said()
    finally:
        _kill(study)
    assert there.runs().status.tolist() == ["ok"], there.runs().failure_message.tolist()
    assert (len(there.calls("bsub")), len(there.calls("jsrun"))) == (1, 1), (
        "the job that was queued is the one that ran"
    )


@pytest.mark.long
def test_a_job_that_ends_while_snakemake_is_gone_is_not_run_again(site):
    there = site("lsf")
    there.hold()
    study = there.start("one")
    wait_for(lambda: there.calls("bjobs"), study)
    _kill(study)
    there.release()
    wait_for(lambda: list(there.results.rglob("outcome.json")))
    wait_for(lambda: list(there.project.root.glob(".cluster/*/exit_code")))
    assert there.snakemake("one", "--unlock").returncode == 0
    done = there.snakemake("one")
    assert done.returncode == 0, done.stderr[-3000:]
    assert there.runs().status.tolist() == ["ok"]
    assert (len(there.calls("bsub")), len(there.calls("jsrun"))) == (1, 1)


@pytest.mark.parametrize("answer_s", [0, pytest.param(3, marks=pytest.mark.long)])
def test_ctrl_c_cancels_the_jobs(program_site, answer_s):
    """Where answers take time it comes while Snakemake asks for a state: then its own cancelling finds no jobs."""
    there = program_site("lsf", STANDIN_ANSWER_S=answer_s)
    there.hold()
    study = there.start("one")
    try:
        wait_for(lambda: there.calls("bjobs"), study)
        study.send_signal(signal.SIGINT)
        study.wait(WAIT_S)
    finally:
        _kill(study)
    wait_for(lambda: there.calls("bkill"))
    wait_for(lambda: [json.loads(job.read_text()).get("cancelled") for job in there.state.glob("*.job")] == [True])


def _state_of(process):
    try:
        return process.environ().get("STANDIN_STATE")
    except psutil.Error:
        return None


def _processes_of(there):
    return [p for p in psutil.process_iter(["cmdline"]) if str(there.project.root) in " ".join(p.info["cmdline"] or [])]


def _kill(study):
    """SIGKILL to Snakemake and whatever it started in its session; batch jobs have sessions of their own."""
    if study.poll() is None:
        os.killpg(study.pid, signal.SIGKILL)
        study.wait()
