"""The command of a batch job, without a Snakemake in the job."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.launch import batch_job
from study.machines import launchers


@pytest.fixture
def job(tmp_path, monkeypatch):
    """``job("echo 1", inputs=["a"])``: a job in the test's folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(command="true", inputs=(), outputs=(), logs=()):
        return batch_job.BatchJob(str(tmp_path), command, list(inputs), list(outputs), list(logs))

    return make


def line_of(job, folder):
    """The command line of a batch job, in a file."""
    batch_job.write_lanes([[job]], folder / "job.json")
    return [sys.executable, str(SCRIPTS / "run_job.py"), "--latency-s", "0.1", str(folder / "job.json")]


def run(job, folder, **variables):
    """Run it from another folder."""
    line = line_of(job, folder)
    return subprocess.run(line, cwd="/", env={**os.environ, **variables}, capture_output=True, text=True)


def test_a_file_gives_the_job_back(job, tmp_path):
    there = job('echo "it\'s" $1 `x` \\n é', ["a b"], ["c"], ["d"])
    batch_job.write_lanes([[there, there], [there]], tmp_path / "job.json")
    assert batch_job.read_lanes(tmp_path / "job.json") == [[there, there], [there]]


def test_the_command_runs_in_its_folder_and_its_status_is_the_job_s(job, tmp_path):
    done = run(job('pwd; echo "$SCRIPTS"; exit 7'), tmp_path)
    assert (done.stdout.split(), done.returncode) == ([str(tmp_path), str(SCRIPTS)], 7)


def test_an_input_may_be_seen_late(job, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_job, "POLL_S", 0.02)
    late = threading.Timer(0.1, (tmp_path / "late").touch)
    late.start()
    job(inputs=["late"]).prepare(latency_s=30)
    late.join()
    with pytest.raises(StudyError, match="^never: not there after 0.05 s"):
        job(inputs=["late", "never"]).prepare(latency_s=0.05)


def test_the_job_s_file_may_be_seen_late_too(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPTS / "run_job.py", "--latency-s", "0.1", tmp_path / "1.json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith(f"error: {tmp_path / '1.json'}: not there after 0.1 s")


def test_outputs_of_another_job_stay_and_folders_are_there_when_the_command_starts(job, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "outcome.json").write_text("of an earlier job")
    done = run(job("ls run logs", outputs=["run/outcome.json"], logs=["logs/train.log"]), tmp_path)
    assert done.stdout.split() == ["logs:", "run:", "outcome.json"], done.stderr


def test_what_steers_does_not_reach_the_command(job, tmp_path):
    """As `study.core.environment.prepare_for_jobs` says."""
    shell = {"HOROVOD_FUSION_THRESHOLD": "1", "OMP_NUM_THREADS": "3", "SITE": "here"}
    done = run(job('echo "${HOROVOD_FUSION_THRESHOLD-} ${OMP_NUM_THREADS-} $SITE"'), tmp_path, **shell)
    assert done.stdout.split() == ["here"], done.stderr


def test_srun_takes_no_numbers_of_its_job_for_its_own():
    """Nor those of a job around it; where Slurm is must be known, and outside of a job nothing is removed."""
    kept = {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/"}
    defaults = {"SRUN_DEBUG": "1", "SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "2", "SBATCH_QOS": "debug"}
    assert launchers.remove_slurm_defaults({**kept, **defaults}) == {**kept, **defaults}
    in_job = {**kept, "SLURM_JOB_ID": "5"}
    assert launchers.remove_slurm_defaults({**in_job, **defaults}) == in_job


def test_a_signal_to_the_job_reaches_the_command(job, tmp_path):
    """A batch system may tell one process only; no other stands between it and the command."""
    command = 'trap "echo told; exit 3" TERM; touch begun; while true; do sleep 0.05; done'
    process = subprocess.Popen(line_of(job(command), tmp_path), stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[0].split() == ["told"]
    assert process.returncode == 3


def run_lanes(folder, *lanes):
    batch_job.write_lanes(lanes, folder / "job.json")
    return batch_job.run_lanes(folder / "job.json", latency_s=0.1)


def test_the_commands_of_a_lane_run_in_turn_whatever_became_of_the_one_before(job, tmp_path):
    first, failing, last = job("sleep 0.2; echo 1 >> said"), job("echo 2 >> said; exit 3"), job("echo 3 >> said")
    assert run_lanes(tmp_path, [first, failing, last]) == 1
    assert (tmp_path / "said").read_text().split() == ["1", "2", "3"]
    assert run_lanes(tmp_path, [job(inputs=["never"]), last]) == 1
    assert (tmp_path / "said").read_text().split()[3:] == ["3"]
    assert run_lanes(tmp_path, [first, last]) == run_lanes(tmp_path) == 0


def test_lanes_are_at_work_at_the_same_time(job, tmp_path):
    meet = "touch {0}; for i in $(seq 300); do [ -e {1} ] && exit 0; sleep 0.1; done; exit 1"
    assert run_lanes(tmp_path, [job(meet.format("a", "b"))], [job(meet.format("b", "a"))]) == 0


def test_a_command_does_not_start_if_the_job_would_cut_it_short(job, tmp_path, monkeypatch, capfd):
    """The first one may: its own limit is then what the job has left."""
    monkeypatch.setenv("STUDY_JOB_ENDS", str(time.time() + 600))
    long = dataclasses.replace(job("echo long >> said", outputs=["long"]), limit_s=3600)
    assert run_lanes(tmp_path, [long, long, dataclasses.replace(job("echo short >> said"), limit_s=300)]) == 1
    assert (tmp_path / "said").read_text().split() == ["long", "short"]
    assert "it may take 3600 s; another job makes it: long" in capfd.readouterr().err


def test_a_signal_ends_the_commands_at_work_and_no_other_starts(job, tmp_path):
    command = 'trap "touch told; exit 0" TERM; touch begun; while true; do sleep 0.05; done'
    batch_job.write_lanes(
        [[job(command), job("touch next")], [job(command.replace("begun", "too"))]], tmp_path / "job.json"
    )
    line = [sys.executable, str(SCRIPTS / "run_job.py"), "--latency-s", "0.1", str(tmp_path / "job.json")]
    process = subprocess.Popen(line)
    until = time.monotonic() + 30
    while not all((tmp_path / name).exists() for name in ("begun", "too")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert (tmp_path / "told").exists() and not (tmp_path / "next").exists()
