"""The study through a real Slurm: four virtual nodes on this machine, in a folder of their own."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from project import BIN, ROOT, has_mpi
from test_clusters import ONE_RUN

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "mpirun")
MISSING = [program for program in NEEDED if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"no Slurm here: {', '.join(MISSING)} missing (.ci/run installs it as root)"
    ),
    pytest.mark.skipif(os.getuid() != 0, reason="a Slurm of one's own needs root"),
]
MACHINE = """
description: four virtual nodes of a real Slurm
scheduler: slurm
launcher: srun
nodes: 4
ranks_per_node: 1
cores_per_rank: 1
gpus_per_rank: 0
environment: {SLURM_CONF: FILE}
power_sensors: [nvml, rapl]
time_limit_s: 300
"""


@pytest.fixture(scope="module")
def slurm():
    """SLURM_CONF of the running Slurm."""
    if not has_mpi():
        pytest.skip("this Horovod was built without MPI, which srun needs")
    folder = Path(tempfile.mkdtemp(prefix="slurm."))  # a short path: munge's socket lies in it
    scripts = ROOT / "tests" / "clusters" / "slurm"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    try:
        started = subprocess.run(
            [scripts / "start.sh", folder], env={**os.environ, "PATH": path}, text=True, capture_output=True
        )
        assert started.returncode == 0, started.stdout + started.stderr
        yield folder / "slurm.conf"
    finally:
        subprocess.run([scripts / "stop.sh", folder])
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def study(fresh, slurm):
    """Run a study of the fresh project through the profile: ``study("smoke")`` gives the finished process."""
    (fresh.root / "config" / "machines" / "virtual.yaml").write_text(MACHINE.replace("FILE", str(slurm)))
    profile = fresh.root / "profiles" / "slurm" / "config.yaml"
    lines = [line for line in profile.read_text().splitlines() if "constraint" not in line and "qos" not in line]
    text = "\n".join(line for line in lines if not line.startswith("default-resources"))  # Perlmutter's own
    profile.write_text(
        text.replace("status-checks: 20", "status-checks: 2").replace("latency-wait: 60", "latency-wait: 10")
    )
    fresh.add_study("one", ONE_RUN)
    variables = {
        **fresh.variables,
        "SLURM_CONF": str(slurm),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "STUDY_ACCOUNT": "test",
    }
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(name, *arguments):
        line = [BIN / "snakemake", "--profile", "profiles/slurm", "--slurm-status-command", "squeue", *arguments]
        line += ["--config", f"study={name}", "machine=virtual"]
        return subprocess.run(line, cwd=fresh.root, env=variables, capture_output=True, text=True, timeout=1200)

    run.results = fresh.root / "results" / "virtual"
    run.project, run.variables = fresh, variables
    return run


def test_the_smoke_study_over_two_nodes_each(study):
    """Every run has two ranks on two nodes of one rank each, started by srun."""
    done = study("smoke", "--jobs", "2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = pd.read_csv(study.results / "runs.csv")
    assert runs.status.tolist() == ["ok"] * 4, runs.failure_message.tolist()
    assert runs.nodes.tolist() == [2] * 4
    for record in runs.record:
        provenance = json.loads((study.results / record).with_name("provenance.json").read_text())
        assert provenance["launch_line"][:4] == ["srun", "--overlap", "--nodes", "2"]
        log = (study.results / record).with_name("train.log").read_text()
        assert "0: epoch 1/" in log, "srun says whose line it is"
    again = study("smoke")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_run_over_its_time_limit_is_recorded(study):
    study.project.change("config/machines/virtual.yaml", "time_limit_s: 300", "time_limit_s: 6")
    study("one")
    run = pd.read_csv(study.results / "runs.csv").iloc[0]
    assert (run.status, run.failure_kind) == ("failed", "timeout")


def test_a_job_that_slurm_ends_at_its_walltime_is_recorded_and_not_run_again(study):
    """Our own limit, which ends a run before its job's end, is put out of action for it."""
    study.project.change("scripts/study/machines/queues.py", "MARGIN_MIN = 5", "MARGIN_MIN = -4")  # a job of one minute
    study.project.change("scripts/study/machines/queues.py", "- now - LAST_S", "- now + 3600")
    study.project.add_study("one", ONE_RUN.replace("epochs: 1", "epochs: 4000"))
    study("one")
    job = subprocess.run(["scontrol", "show", "jobs"], env=study.variables, capture_output=True, text=True).stdout
    assert job.count("JobState=TIMEOUT") == 1, "what Slurm itself says: the second job trained no more"
    run = pd.read_csv(study.results / "runs.csv").iloc[0]
    assert (run.status, run.failure_kind, run.failure_phase) == ("failed", "timeout", "train")
    assert "walltime" in run.failure_message
    assert 30 < run.runtime_s < 120
