"""Exact command lines and exact answers of each batch system, and what is made of them: never a guess of success."""

import dataclasses
import datetime
import os
import subprocess
import sys

import pytest

from study.commands.jobs import cluster
from study.core.errors import StudyError
from study.machines import batch_jobs, machine, queues
from study.machines.batch_systems import BATCH_SYSTEMS, Job, State
from study.machines.machine import load

JOB = Job(
    "train", "/w/job.sh", "/w/job.output", 64, 125, "ABC123", (), ranks_per_node=4, cores_per_rank=16, gpus_per_rank=1
)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("lsf", ["-alloc_flags", "smt4 gpumps"],
         "bsub|-P|ABC123|-W|2:05|-nnodes|64|-alloc_flags|smt4 gpumps|-J|train|-o|/w/job.output|/w/job.sh"),
        ("cobalt", ["-q", "default", "--attrs", "mcdram=flat:numa=quad"],
         "qsub|-n|64|-t|125|-A|ABC123|-q|default|--attrs|mcdram=flat:numa=quad|--jobname|train|-O|/w/job|/w/job.sh"),
        ("pbs", ["-q", "prod"],
         "qsub|-A|ABC123|-l|select=64|-l|walltime=02:05:00|-q|prod|-N|train|-j|oe|-o|/w/job.output|/w/job.sh"),
        ("flux", ["--queue=pbatch"],
         "flux|batch|--nodes=64|--exclusive|--time-limit=125m|--setattr=bank=ABC123|--queue=pbatch|--job-name=train|"
         "--output=/w/job.output|/w/job.sh"),
        ("slurm", ["--partition=batch", "--exclusive"],
         "sbatch|--parsable|--account=ABC123|--nodes=64|--time=125|--ntasks-per-node=4|--cpus-per-task=16|--gres=gpu:4|"
         "--partition=batch|--exclusive|--job-name=train|--output=/w/job.output|/w/job.sh"),
    ],
)  # fmt: skip
def test_submit_lines(name, options, line):
    job = dataclasses.replace(JOB, options=tuple(options))
    assert BATCH_SYSTEMS[name]().submit_line(job) == line.split("|")


@pytest.mark.parametrize(
    ("nodes", "ranks", "words"),
    [(1, "1", ["--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1"]),  # a small job has the queue's smallest size
     (2, "6", ["--nodes=2", "--ntasks-per-node=4", "--gres=gpu:4"]),
     (2, "3", ["--nodes=2", "--ntasks-per-node=3", "--gres=gpu:3"]),  # packed, of 1 and 2 ranks: the most is enough
     (2, None, ["--nodes=2", "--ntasks-per-node=4", "--gres=gpu:4"])],
)  # fmt: skip
def test_a_job_asks_for_what_its_ranks_need_of_each_node(asked_of, nodes, ranks, words):
    line = asked_of("--nodes", str(nodes), *(["--ranks", ranks] if ranks else []))
    assert [word for word in line if word.startswith(("--nodes", "--ntasks", "--gres"))] == words
    assert {"--account=ABC123", "--cpus-per-task=16", "--time=10", "--qos=regular"} <= set(line)


@pytest.fixture
def asked_of(asked, monkeypatch):
    """The submit line that ``scripts/cluster.py`` makes of these arguments, on a machine whose jobs have two nodes."""
    on = {**load("perlmutter"), "queue": {"smallest_nodes": 2}}
    monkeypatch.setattr(machine, "load", lambda name: on)
    monkeypatch.setenv("STUDY_ACCOUNT", "ABC123")
    asked[0].append((0, "7\n", ""))

    def submit(*arguments):
        line = ["cluster.py", "submit", "--machine", "m", "--minutes", "10", *arguments, "snakejob.sh"]
        monkeypatch.setattr(sys, "argv", line)
        cluster(standalone_mode=False)
        return asked[1][-1]

    return submit


@pytest.mark.parametrize(
    ("name", "answer", "job_id"),
    [
        ("lsf", "Job <4321> is submitted to default queue <batch>.\n", "4321"),
        ("lsf", "Memory reservation is (MB): 1\nJob <4321> is submitted to queue <batch-hm>.\n", "4321"),
        ("lsf", "Request aborted by esub. Job not submitted.\n", None),
        ("cobalt", "4321\n", "4321"),
        ("cobalt", "WARNING: the system will be down on Monday\n4321\n", "4321"),
        ("cobalt", "no project 77\n", None),
        ("pbs", "4321.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov\n", "4321.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov"),
        ("pbs", "", None),
        ("flux", "ƒ2\n", "1"),
        ("flux", "flux-batch: note\nfzzz\n", str(57 * 58 * 58 + 57 * 58 + 57)),
        ("flux", "flux-batch: ERROR: unsatisfiable request\n", None),
        ("slurm", "4321\n", "4321"),
        ("slurm", "Welcome to the cluster\n4321;alpha\n", "4321"),
        ("slurm", "", None),
    ],
)
def test_job_ids(name, answer, job_id):
    assert BATCH_SYSTEMS[name]().job_id(answer) == job_id


# What a batch system prints, with exit code 0, and which state that is.
PRINTED = {
    ("lsf", State.RUNNING): ["PEND", "Welcome to the cluster\nRUN", "RUN\nNote: maintenance on Tuesday",
                             "\x1b[32mRUN\x1b[0m"],
    ("lsf", State.UNREACHABLE): ["UNKWN"],
    ("lsf", State.SUCCESS): ["DONE"],
    ("lsf", State.FAILED): ["ZOMBI", "EXIT"],
    ("lsf", State.FORGOTTEN): ["Job <7> is not found"],
    ("lsf", State.UNREADABLE): ["BANANA", ""],
    ("cobalt", State.RUNNING): ["State\n=======\nqueued", "State\n=======\ndep_hold"],
    ("cobalt", State.OVER): ["State\n=======\ndone"],
    ("cobalt", State.FAILED): ["State\n=======\ndep_fail"],
    ("cobalt", State.UNREADABLE): [""],
    ("pbs", State.RUNNING): ["Job Id: 7.a\n    job_state = Q"],
    ("pbs", State.SUCCESS): ["Job Id: 7.a\n    job_state = F\n    Exit_status = 0"],
    ("pbs", State.FAILED): ["Job Id: 7.a\n    job_state = F\n    Exit_status = -29"],
    ("pbs", State.OVER): ["Job Id: 7.a\n    job_state = F"],
    ("pbs", State.UNREADABLE): ["Job Id: 7.a\n    job_state = M"],
    ("flux", State.RUNNING): ["SCHED 16", "CLEANUP 16"],
    ("flux", State.HELD): ["SCHED 0"],
    ("flux", State.SUCCESS): ["COMPLETED 16"],
    ("flux", State.FAILED): ["TIMEOUT 16"],
    # of sacct, which is asked if scontrol does not know the job
    ("slurm", State.SUCCESS): ["COMPLETED", "REQUEUED\nCOMPLETED"],
    ("slurm", State.FAILED): ["FAILED", "CANCELLED by 0", "CANCELLED+", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                              "BOOT_FAIL", "DEADLINE"],
    ("slurm", State.OVER): ["PREEMPTED"],
    ("slurm", State.FORGOTTEN): ["PENDING", "RUNNING", ""],
    ("slurm", State.UNREADABLE): ["BANANA"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "state"), [(name, text, state) for (name, state), texts in PRINTED.items() for text in texts]
)
def test_answers(name, text, state):
    assert BATCH_SYSTEMS[name]().state(0, f"{text}\n" if text else "", "") is state


@pytest.mark.parametrize(
    ("name", "code", "errors", "state"),
    [
        ("lsf", 255, "Job <7> is not found", State.FORGOTTEN),
        ("lsf", 255, "LSF is moving to v10.1\nJob <7> is not found", State.FORGOTTEN),
        ("lsf", 255, "Failed in an LSF library call: LIM is down; try later", State.UNREADABLE),
        ("lsf", None, "timed out", State.UNREADABLE),
        ("cobalt", 1, "", State.FORGOTTEN),
        ("cobalt", 1, "Traceback: cannot connect to the server", State.UNREADABLE),
        ("pbs", 35, "qstat: 7.a Job has finished, use -x or -H to obtain historical job information", State.OVER),
        ("pbs", 153, "qstat: Unknown Job Id 7.a", State.FORGOTTEN),
        ("pbs", 1, "Connection refused", State.UNREADABLE),
        ("flux", 0, "JobID 1 unknown", State.FORGOTTEN),
        ("flux", 1, "flux-jobs: ERROR: Unable to connect to Flux", State.UNREADABLE),
        ("slurm", 1, "slurm_load_jobs error: Invalid job id specified", State.FORGOTTEN),
        ("slurm", 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", State.UNREADABLE),
        ("slurm", None, "[Errno 2] No such file or directory: 'scontrol'", State.UNREADABLE),
        ("slurm", 1, "Slurm accounting storage is disabled", State.FORGOTTEN),
        ("slurm", None, "[Errno 2] No such file or directory: 'sacct'", State.FORGOTTEN),
        ("slurm", 1, "sacct: error: Problem talking to the database: Connection refused", State.UNREADABLE),
    ],
)
def test_answers_that_are_errors(name, code, errors, state):
    assert BATCH_SYSTEMS[name]().state(code, "", errors) is state


ENDED = "... Info: task completed normally with an exit code of {};"


@pytest.mark.parametrize(
    ("job", "text", "state"),
    [
        (7, ENDED.format(0), State.SUCCESS),
        (7, ENDED.format(3), State.FAILED),
        (7, "... Info: maximum execution time exceeded;", State.FAILED),
        (7, "", State.FORGOTTEN),
        (8, ENDED.format(0), State.FORGOTTEN),
    ],
)
def test_cobalt_s_log(tmp_path, job, text, state):
    (tmp_path / "job.cobaltlog").write_text(f"jobid {job} submitted from terminal 12\n{text}")
    assert BATCH_SYSTEMS["cobalt"]().record("7", tmp_path) is state


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Run in an empty folder; every scheduler command gets the next of these answers, and is written down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STUDY_SUBMIT_PAUSE_S", "0")
    monkeypatch.setenv("STUDY_GRACE_S", "0")
    answers, lines = [], []

    def ask(line):
        lines.append(line)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(batch_jobs, "_run_query", ask)
    (tmp_path / "snakejob.sh").write_text("exit ${CODE:-0}\n")
    return answers, lines


SUBMITTED = (0, "Job <7> is submitted to default queue <batch>.\n", "")


def submit(scheduler="lsf"):
    return batch_jobs.submit(scheduler, Job("train", "snakejob.sh", "", 1, 10, "ABC123"))


def test_a_submission_that_fails_twice_and_then_works(asked):
    answers, lines = asked
    answers += [(255, "", "LSF is down"), (255, "", "LSF is down"), SUBMITTED]
    assert submit() == "7"
    assert len(lines) == 3


def test_a_submission_that_goes_on_failing_says_what_the_scheduler_said(asked):
    asked[0].append((255, "", "Project must be specified"))
    with pytest.raises(
        StudyError, match=r"refused the job 6 times: Project must be specified. The line: bsub -P ABC123"
    ):
        submit()


def test_an_answer_without_an_id_is_not_submitted_again(asked):
    asked[0].append((0, "hello\n", ""))
    with pytest.raises(StudyError, match="was the job submitted"):
        submit()
    assert len(asked[1]) == 1


@pytest.mark.parametrize(("code", "state"), [("0", "success"), ("1", "failed")])
def test_the_job_s_own_exit_code_counts_first(asked, monkeypatch, code, state):
    answers, lines = asked
    answers += [SUBMITTED, (0, "RUN\n", "")]
    submit()
    monkeypatch.setenv("CODE", code)
    assert subprocess.run([lines[0][-1]], env={**os.environ}).returncode == int(code)
    assert batch_jobs.status("7") == state
    assert len(lines) == 1, "the scheduler was not asked"


def test_a_job_that_a_signal_ended_may_be_started_again_but_no_job_that_has_ended(asked, tmp_path):
    """As Slurm does with a requeued job: the first time it is killed, the second time it comes to its end."""
    (tmp_path / "snakejob.sh").write_text("echo begun >> marks; [ -e killed ] || { touch killed; kill -9 $$; }\n")
    answers, lines = asked
    answers += [(0, "7\n", ""), (0, "JobState=PENDING Reason=BeginTime\n", "")]
    submit("slurm")

    def start():
        return subprocess.run([lines[0][-1]], env={**os.environ, "SLURM_JOB_ID": "7"}, capture_output=True).returncode

    assert start() == 128 + 9
    assert batch_jobs.status("7") == "running", "as Slurm says"
    assert start() == 0
    assert batch_jobs.status("7") == "success"
    assert start() == 0
    assert (tmp_path / "marks").read_text() == "begun\n" * 2


def test_the_job_knows_when_it_ends(asked, tmp_path):
    (tmp_path / "snakejob.sh").write_text("echo $(( STUDY_JOB_ENDS - $(date +%s) )) > left\n")
    asked[0].append(SUBMITTED)
    submit()
    subprocess.run([asked[1][0][-1]], check=True, cwd="/")
    assert 595 <= int((tmp_path / "left").read_text()) <= 600


def test_a_readable_answer_begins_the_wait_for_readable_ones_anew(asked):
    asked[0][:] = [SUBMITTED]
    submit()
    for _ in range(2):
        asked[0][:] = [(1, "@@ garbage @@", "time out")]
        assert {batch_jobs.status("7") for _ in range(60)} == {"running"}
        asked[0][:] = [(0, "RUN\n", "")]
        assert batch_jobs.status("7") == "running"


def test_grace_begins_anew_when_a_job_is_seen_again(asked):
    asked[0][:] = [SUBMITTED]
    submit()
    asked[0][:] = [(255, "", "Job <7> is not found")]
    assert [batch_jobs.status("7") for _ in range(4)] == ["running"] * 4
    asked[0][:] = [(0, "RUN\n", "")]
    assert batch_jobs.status("7") == "running"
    asked[0][:] = [(255, "", "Job <7> is not found")]
    assert [batch_jobs.status("7") for _ in range(6)] == ["running"] * 5 + ["failed"]


def test_cancelling_asks_the_scheduler_of_each_job(asked):
    asked[0][:] = [SUBMITTED]
    submit()
    batch_jobs.cancel(["7", "unknown"])
    assert asked[1][-1] == ["bkill", "7"]


def test_only_the_jobs_that_this_snakemake_waits_for_are_cancelled_with_it(asked, monkeypatch):
    monkeypatch.setenv(batch_jobs.SESSION, "mine")
    asked[0][:] = [SUBMITTED]
    submit()
    monkeypatch.setenv(batch_jobs.SESSION, "another's")
    assert batch_jobs.cancel_watched() == []
    asked[0][:] = [(0, "RUN\n", "")]
    assert batch_jobs.status("7") == "running", "which makes it this one's: Snakemake goes on with a job that it finds"
    assert batch_jobs.cancel_watched() == ["7"]
    assert asked[1][-1] == ["bkill", "7"]
    asked[0][:] = [(0, "EXIT\n", "")]
    assert batch_jobs.status("7") == "failed"
    assert batch_jobs.cancel_watched() == []


MACHINE = {"name": "m", "time_limit_s": 6900, "ranks_per_node": 6, "launcher": "jsrun", "nodes": 4608,
           "queue": {"smallest_nodes": 2, "longest_minutes": [{"from_nodes": 1, "minutes": 100},
                                                              {"from_nodes": 46, "minutes": 360}]}}  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (6, "2 nodes may run for 100 minutes, a job takes 120"),
        (12, "may run for 100 minutes, a job takes 120"),
        (276, None),
    ],
)
def test_queue_rules(ranks, words):
    refusal = queues.refuse_run(queues.Timed(ranks, MACHINE["time_limit_s"]), MACHINE)
    assert refusal is None if words is None else words in refusal


def test_what_a_run_may_take_ends_before_its_job():
    assert queues.read_job({}) is None
    assert queues.compute_seconds_left(None, now=0) is None
    job = queues.read_job({"STUDY_JOB_ENDS": "1000", "LSB_JOBID": "7"})
    assert job == {"id": "7", "ends_s": 1000.0}
    assert queues.compute_seconds_left(job, now=400) == 600 - queues.LAST_S
    with pytest.raises(StudyError, match="the batch job 7 ended 1000 s ago"):
        queues.compute_seconds_left(job, now=2000)
    with pytest.raises(StudyError, match="the batch job 7 ends in 60 s"):
        queues.compute_seconds_left(job, now=940)
    assert queues.compute_seconds_left(queues.read_job({"PBS_JOBID": "8.server"}), now=2000) is None


def test_a_slurm_that_does_not_tell_a_job_s_end_is_asked(tmp_path, monkeypatch):
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 2026-01-02T03:04:05\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    told = datetime.datetime(2026, 1, 2, 3, 4, 5).timestamp()
    assert queues.read_job({**os.environ, "SLURM_JOB_ID": "9"}) == {"id": "9", "ends_s": told}
    assert queues.read_job({"SLURM_JOB_ID": "9", "SLURM_JOB_END_TIME": "77"})["ends_s"] == 77
    squeue.write_text('#!/bin/sh\n[ -n "$SLURM_TIME_FORMAT" ] && date +%F || echo 2026-01-02T03:04:05\n')
    wish = {"SLURM_JOB_ID": "9", "SLURM_TIME_FORMAT": "%Y-%m-%d"}  # of a user who does not care for hours
    assert queues.read_job({**os.environ, **wish}) == {"id": "9", "ends_s": told}
    squeue.write_text("#!/bin/sh\necho N/A\n")
    assert queues.read_job({**os.environ, "SLURM_JOB_ID": "9"}) == {"id": "9", "ends_s": None}


def test_a_lost_run_timed_out_only_if_it_lived_to_its_job_s_end():
    job = {"id": "7", "ends_s": 1000.0}
    assert queues.describe_lost_job(job, 990e9)[0] == "timeout"
    kind, message = queues.describe_lost_job(job, 500e9)
    assert (kind, "its batch job 7 was lost" in message) == ("killed", True)
    assert queues.describe_lost_job(None, 500e9)[0] == "killed"
