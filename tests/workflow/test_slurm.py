"""The study through a real Slurm: four virtual nodes on this machine, in a folder of their own."""

import datetime
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import fork_server
import pandas as pd
import pytest
import virtual_slurm
from project import BIN, WAIT_S, has_mpi, wait_for
from test_block_jobs import add_blocks, check_blocks
from test_clusters import ONE_OF_EACH, ONE_PROGRAM, ONE_RUN, PROGRAM

MISSING = [*virtual_slurm.missing(), *(["mpirun"] if shutil.which("mpirun") is None else [])]
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"no Slurm here: {', '.join(MISSING)} missing (.ci/run installs it as root)"
    ),
    pytest.mark.skipif(os.getuid() != 0, reason="a Slurm of one's own needs root"),
]


# Appended to `study.machines.queues`. With a last part of an hour, each signal is due to the walltime.
NO_LIMIT_OF_OUR_OWN = """
assert compute_seconds_left and LAST_S
LAST_S = 3600


def compute_seconds_left(job, now):
    return None
"""


@pytest.fixture(scope="module")
def slurm():
    """SLURM_CONF of the running Slurm."""
    if not has_mpi():
        pytest.skip("this Horovod was built without MPI, which srun needs")
    folder = Path(tempfile.mkdtemp(prefix="slurm."))  # a short path: munge's socket is in it
    virtual = virtual_slurm.VirtualSlurm(folder)
    try:
        virtual.start()
        yield virtual.configuration
    finally:
        virtual.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def study(project, slurm):
    """Run a study through the profile: ``study("one")`` gives the finished process; the data are there, converted."""
    (project.root / "config" / "machines" / "virtual.yaml").write_text(virtual_slurm.MACHINE)
    profile = project.root / "profiles" / "slurm" / "config.yaml"
    text = profile.read_text().replace("status-checks: 20", "status-checks: 1")
    profile.write_text(text.replace("latency-wait: 60", "latency-wait: 10"))
    project.add_study("one", ONE_RUN)
    project.add_study("each", ONE_OF_EACH)
    variables = {
        **project.variables,
        "SLURM_CONF": str(slurm),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "STUDY_ACCOUNT": "test",
        "STUDY_GRACE_S": "3",
    }
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def words(name, *arguments):
        return ["--profile", "profiles/slurm", *arguments, "--config", f"study={name}", "machine=virtual"]

    def start(name, *arguments):
        with open(said, "w") as output:
            return subprocess.Popen(
                [BIN / "snakemake", *words(name, *arguments)], cwd=project.root, env=variables, stdout=output,
                stderr=output,
            )  # fmt: skip

    def run(name, *arguments):
        done = fork_server.run(words(name, *arguments), project.root, variables, WAIT_S)
        return done.returncode, done.stdout + done.stderr

    said = project.root.parent / "said"
    run.said = lambda: said.read_text()[-3000:]
    run.start, run.results = start, project.root / "results" / "virtual"
    run.project, run.variables = project, variables
    run.made = run.results / "studies" / "each"
    return run


def test_a_study_over_two_nodes(study):
    """Its run has two ranks on two nodes of one rank each, started by srun; its measurement is a job of one node."""
    code, said = study("each", "--jobs", "2")
    assert code == 0, said[-3000:]
    runs = pd.read_csv(study.made / "runs.csv")
    assert runs.status.tolist() == ["ok"], runs.failure_message.tolist()
    assert runs.nodes.tolist() == [2]
    assert (study.made / "tables" / "icpp2019_table3.md").exists()
    for record in runs.record:
        provenance = json.loads((study.results / record).with_name("provenance.json").read_text())
        assert provenance["launch_line"][:4] == ["srun", "--overlap", "--nodes", "2"]
        log = (study.results / record).with_name("train.log").read_text()
        assert "0: epoch 1/" in log, "srun says whose line it is"
    assert "Nothing to be done" in study("each")[1]


def test_a_command_is_measured_on_nodes_of_a_partition(study, tmp_path):
    """From the login node, in a folder of the user's, with nothing but the partition's name."""
    (tmp_path / "train.sh").write_text("sleep 1\necho trained by $RANK of $WORLD_SIZE\n")
    line = [BIN / "study", "measure", "--partition", "all", "--ranks", "1,2", "--repeats", "1", "--success", "trained"]
    done = subprocess.run(
        [*line, "sh", "train.sh"], cwd=tmp_path, env=study.variables, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = tmp_path.glob("scaling/results/*/here/studies/train/runs.csv")
    runs = pd.read_csv(table)
    assert runs["status"].tolist() == ["ok", "ok"] and runs["unproven"].isna().all()
    lines = [
        json.loads(path.read_text())["launch_line"] for path in table.parents[2].glob("runs/*/*/*/provenance.json")
    ]
    assert [line[0] for line in lines] == ["srun", "srun"]


def test_a_program_of_one_s_own_over_two_nodes(study):
    """The NumPy example without Horovod: srun tells each process its rank, and they meet at rank 0's node."""
    root = study.project.root
    benchmark = (root / "examples/numpy_logistic/config/benchmarks/numpy_logistic.yaml").read_text()
    (root / "config/benchmarks/numpy_logistic.yaml").write_text(f"{benchmark}folder: examples/numpy_logistic\n")
    grid = "{benchmark: numpy_logistic, scaling: strong, gpus: 2}"
    study.project.add_study("own", f"description: a test\nruns: [{grid}]\ntables: [scaling]\n")
    code, said = study("own", "results/virtual/studies/own/runs.csv", "--jobs", "1")
    assert code == 0, said[-3000:]
    runs = pd.read_csv(study.results / "studies" / "own" / "runs.csv")
    assert runs.status.tolist() == ["ok"], runs.failure_message.tolist()
    assert runs.nodes.tolist() == [2] and runs.test_accuracy.item() > 0.9


def test_a_block_s_runs_of_one_size_share_a_batch_job(study):
    add_blocks(study.project, 2, 3)
    study.project.append("config/machines/virtual.yaml", "queue: {longest_minutes: [{from_nodes: 1, minutes: 60}]}\n")
    code, said = study("blocks", *(f"results/virtual/studies/blocks/{name}" for name in ("runs.csv", "findings.json")))
    assert code == 0, said[-3000:]
    check_blocks(study.results, [2, 3])


WHERE = """import os, time
print("runs on", os.environ["SLURMD_NODENAME"], flush=True)
time.sleep(5)
"""


@pytest.mark.long
def test_small_runs_share_a_job_and_each_has_its_own_node(study):
    """Two runs of one node in a queue whose smallest job has two nodes."""
    study.project.append("config/machines/virtual.yaml", "queue: {smallest_nodes: 2}\n")
    (study.project.root / "config" / "benchmarks" / "program.yaml").write_text(PROGRAM)
    (study.project.root / "program.py").write_text(WHERE)
    study.project.add_study("packed", ONE_PROGRAM.replace("gpus: 2", "gpus: 1, repeats: 2"))
    code, said = study("packed", "results/virtual/studies/packed/runs.csv", "--jobs", "1")
    assert code == 0, said[-3000:]
    runs = pd.read_csv(study.results / "studies" / "packed" / "runs.csv")
    assert runs.status.tolist() == ["ok"] * 2, runs.failure_message.tolist()
    logs = [(study.results / record).with_name("train.log").read_text() for record in runs.record]
    assert len({re.search(r"runs on (n\d)", log)[1] for log in logs}) == 2
    assert len(list(study.project.root.glob(".cluster/*.json"))) == 1


STRATEGIES = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 1, loader: npy, strategy: parameter_server, servers: 1}
tables: [scaling, strategies]
"""


def strategies_of(runs):
    """The test losses of the runs of `STRATEGIES`, which tell their weights; with other threads, bits may differ."""
    return pytest.approx(runs.test_loss.tolist(), rel=1e-6)


@pytest.mark.long
def test_strategies_have_their_roles_by_rank(study):
    """On nodes of one rank: a chief, a server and a worker on three, then two workers on four."""
    two = STRATEGIES.replace(
        "tables", "  - {benchmark: nt3, scaling: weak, epochs: 3, gpus: 2, loader: npy, strategy: parameter_server, "
        "servers: 1}\ntables"
    )  # fmt: skip
    study.project.add_study("strategies_test", STRATEGIES)
    study.project.snakemake(study="strategies_test")
    alone = pd.read_csv(study.project.made / "runs.csv")
    study.project.add_study("strategies_test", two)
    code, said = study("strategies_test", "--jobs", "1")
    assert code == 0, said[-3000:]
    runs = pd.read_csv(study.results / "studies" / "strategies_test" / "runs.csv")
    assert set(runs.status) == {"ok"}, runs.failure_message.tolist()
    assert strategies_of(runs[runs.epochs == 2]).expected == strategies_of(alone)
    assert runs.set_index("gpus").nodes.to_dict() == {1: 3, 2: 4}
    assert (runs.workers_lost == 0).all()
    (served,) = runs[runs.epochs == 3].record
    record = json.loads((study.results / served).read_text())
    assert [each["role"] for each in record["processes"]] == ["chief", "server", "worker", "worker"]
    line = json.loads((study.results / served).with_name("provenance.json").read_text())["launch_line"]
    assert line[:6] == ["srun", "--overlap", "--nodes", "4", "--ntasks", "4"]


@pytest.mark.long
def test_a_job_that_slurm_ends_at_its_walltime_is_recorded_and_not_run_again(study):
    """Our own limit, which ends a run before its job's end, is put out of action for it."""
    study.project.append("scripts/study/machines/queues.py", NO_LIMIT_OF_OUR_OWN)
    study.project.add_study("one", ONE_RUN.replace("epochs: 1", "epochs: 2"))
    study.project.hold_training(after=1)
    started = study.start("one")

    def asked(*line):
        return subprocess.run(line, env=study.variables, capture_output=True, text=True, check=True).stdout

    def trains():
        return any("epoch 1/" in path.read_text() for path in study.results.rglob("train.log"))

    before = set(asked("scontrol", "show", "jobs", "--oneliner").splitlines())
    try:
        wait_for(trains, started)
        asked("scontrol", "update", f"JobId={asked('squeue', '--noheader', '--format', '%A').strip()}", "TimeLimit=1")
        assert started.wait(WAIT_S) == 0, study.said()
    finally:
        started.kill()
    jobs = [line for line in asked("scontrol", "show", "jobs", "--oneliner").splitlines() if line not in before]
    (ended,) = (re.search(r"EndTime=(\S+)", job)[1] for job in jobs if "JobState=TIMEOUT" in job)
    run = pd.read_csv(study.results / "studies" / "one" / "runs.csv").iloc[0]
    assert (run.status, run.failure_kind, run.failure_phase) == ("failed", "timeout", "train")
    assert "walltime" in run.failure_message
    outcome = json.loads((study.results / run.record).with_name("outcome.json").read_text())
    lived_until = outcome["started_wall_ns"] / 1e9 + outcome["runtime_s"]
    assert lived_until == pytest.approx(datetime.datetime.fromisoformat(ended).timestamp(), abs=30)
