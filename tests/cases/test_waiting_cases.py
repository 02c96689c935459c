"""Waits that must end, states of batch systems, and jobs that are over."""

import json
import os
import subprocess
import time

import pytest
from ended import ends_by_number
from examples import expand

from study.core import commands
from study.core.errors import StudyError
from study.experiment import inputs
from study.launch import model_checks, variables
from study.machines import batch_jobs, launchers, machine, machine_lock, queues, run_layout
from study.machines.batch_systems import BATCH_SYSTEMS, Job, State

NO_HISTORY = (36, "", "qstat: PBS is not configured to maintain job history 4711.pbs01\n")
UNKNOWN = (153, "", "qstat: Unknown Job Id 4711.pbs01\n")


@pytest.fixture
def polls(monkeypatch, tmp_path):
    """The states of a job without an exit code, by the answers of its scheduler: ``polls("pbs", answer_of_a_line)``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STUDY_GRACE_S", "0")

    def ask(scheduler, answer, number):
        (tmp_path / ".cluster/j").mkdir(parents=True, exist_ok=True)
        job = "4711.pbs01"
        batch_jobs.write_json(
            batch_jobs._state_file(job), {"scheduler": scheduler, "folder": ".cluster/j", "watched_by": None}
        )
        monkeypatch.setattr(batch_jobs, "_run_query", answer)
        return [batch_jobs.status(job) for _ in range(number)]

    return ask


@pytest.mark.case("pbs-no-history", source="Azure/az-hop#14, cgat-core#122", right="failed after the grace period")
def test_a_pbs_without_history_is_asked_without_x(polls):
    found = polls("pbs", lambda line: NO_HISTORY if "-x" in line else UNKNOWN, 6)
    assert found == ["running"] * 5 + ["failed"]


def test_a_pbs_without_history_still_tells_that_a_job_runs(polls):
    running = (0, "Job Id: 4711.pbs01\n    job_state = R\n", "")
    assert set(polls("pbs", lambda line: NO_HISTORY if "-x" in line else running, 20)) == {"running"}


HELD = {
    "pbs": ["    job_state = H\n    Hold_Types = s\n", "    job_state = S\n",
            "    job_state = Q\n    comment = Can Never Run: Insufficient amount of resource: ncpus\n"],
    "lsf": ["PSUSP\n", "USUSP\n"],
    "cobalt": ["State\n=====\nuser_hold\n", "State\n=====\nadmin_hold\n"],
}  # fmt: skip


@pytest.mark.case("held", source="burrmill/burrmill#15, our own", right="said at once; cancelled after three days")
@pytest.mark.parametrize(("scheduler", "output"), [(name, each) for name, texts in HELD.items() for each in texts])
def test_a_held_job_is_told_and_cancelled_in_the_end(polls, capsys, monkeypatch, scheduler, output):
    monkeypatch.setattr(batch_jobs, "UNREADABLE_POLLS", 5)
    lines = []
    found = polls(scheduler, lambda line: (lines.append(line), (0, output, ""))[1], batch_jobs.UNREADABLE_POLLS + 1)
    said = capsys.readouterr().err
    assert found == ["running"] * batch_jobs.UNREADABLE_POLLS + ["failed"]
    assert said.count("is held, suspended or can never run") == 1
    assert lines[-1] == BATCH_SYSTEMS[scheduler]().cancel_line(["4711.pbs01"])


def test_a_job_is_held_for_three_days_at_most_and_each_release_begins_anew(polls, monkeypatch):
    monkeypatch.setattr(batch_jobs, "_read_grace_s", lambda: 60)
    clock = [1e9]
    monkeypatch.setattr(batch_jobs.time, "time", lambda: clock[0])
    states = ["H"] * 70 + ["Q"] + ["H"] * 300

    def answer(line):
        clock[0] += 3600
        return 0, f"    job_state = {states.pop(0) if len(states) > 1 else states[0]}\n", ""

    monkeypatch.setattr(batch_jobs, "UNREADABLE_POLLS", 5)
    found = polls("pbs", answer, 150)
    assert found.index("failed") == 71 + 72, "72 hours of a poll each after the release"


@pytest.mark.case("lsf-unreachable", source="nextflow-io/nextflow#5666", right="failed once its walltime is over")
def test_a_job_whose_node_is_out_of_reach_ends_with_its_walltime(polls, monkeypatch, capsys):
    monkeypatch.setattr(batch_jobs, "_read_grace_s", lambda: 60)
    clock = [1e9]
    monkeypatch.setattr(batch_jobs.time, "time", lambda: clock[0])

    def answer(line):
        clock[0] += 300
        return 0, "UNKWN\n", ""

    found = polls("lsf", answer, 300)
    minutes = 5 * found.index("failed")
    assert minutes == batch_jobs.UNKNOWN_MINUTES + batch_jobs.GRACE_POLLS
    assert "out of reach for longer than its walltime" in capsys.readouterr().err


@pytest.mark.case("status-fails-itself", source="our own", right="failed, after hours")
def test_a_status_that_cannot_be_found_out_has_an_end(polls, monkeypatch, capsys):
    def broken(line):
        raise RuntimeError("a bug")

    monkeypatch.setattr(batch_jobs, "UNREADABLE_POLLS", 5)
    found = polls("pbs", broken, batch_jobs.UNREADABLE_POLLS + 1)
    assert found == ["running"] * batch_jobs.UNREADABLE_POLLS + ["failed"]
    assert "could not be found out for hours: RuntimeError('a bug')" in capsys.readouterr().err


@pytest.mark.case("status-on-a-full-disk", source="our own", right="what was found out counts")
@pytest.mark.parametrize(("state", "found"), [("Exit_status = 0", "success"), ("", "failed")])
def test_a_full_disk_makes_no_job_wait_for_ever(polls, monkeypatch, tmp_path, state, found):
    def full(path, *_):
        if str(path).startswith(".cluster"):
            raise OSError(28, "No space left on device", str(path))
        return write(path, *_)

    write = batch_jobs.write_text
    monkeypatch.setattr(machine_lock, "FOLDERS", (str(tmp_path),))
    answer = (0, f"    job_state = F\n    {state}\n", "")
    polls("pbs", lambda _: answer, 1)
    monkeypatch.setattr(batch_jobs, "write_text", full)
    monkeypatch.setattr(batch_jobs, "write_json", full)
    polled = [batch_jobs.status("4711.pbs01") for _ in range(6)]
    assert polled[-1] == found


@pytest.mark.case("wrapper-of-a-command", source="python/cpython#81605, our own", right="ends after its limit")
def test_a_site_s_wrapper_whose_child_hangs_is_not_waited_for():
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run_program(["sh", "-c", "sleep 60; echo late"], 0.2)
    assert time.monotonic() - began < 30


def test_a_program_reads_the_text_that_it_is_given_and_nothing_without():
    counted = ["wc", "-c"]
    assert commands.run_program(counted, 5, text="a" * 100_000).stdout.split() == ["100000"], "more than a pipe holds"
    assert commands.run_program(counted, 5).stdout.split() == ["0"]


def test_children_of_a_program_with_input_are_ended(tmp_path):
    child = f"sleep 60 & echo $! > {tmp_path}/pid; cat; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run_program(["sh", "-c", child], 1, text="cases")
    assert ends_by_number(tmp_path / "pid")


@pytest.mark.case("check-of-models-hangs", source="our own", right="ends after its limit, with what a model started")
def test_what_a_model_starts_does_not_outlive_the_check_of_models(tmp_path, monkeypatch):
    (tmp_path / "check_models.py").write_text(HANGS.format(pid=tmp_path / "pid"))
    monkeypatch.setattr(model_checks, "SCRIPTS", tmp_path)
    monkeypatch.setattr(model_checks, "LIMIT_S", 0.5)
    began = time.monotonic()
    found = model_checks._run_checks([{"definition": {}, "shape": {}}], {})
    assert found == ([], "building them took over 0.5 s")
    assert time.monotonic() - began < 30
    assert ends_by_number(tmp_path / "pid")


# As a model that downloads its weights may.
HANGS = """import subprocess
child = subprocess.Popen(["sleep", "60"])
open('{pid}', "w").write(str(child.pid))
child.wait()
"""


@pytest.fixture
def submitted(monkeypatch, tmp_path):
    """Starts the script of a job of PBS as 7.pbs, which is known, or as 6.pbs, whose submission got no answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STUDY_SUBMIT_PAUSE_S", "0")
    (tmp_path / "snakejob.sh").write_text("echo worked >> work\n")
    answers = [(None, "", "timed out after 60 seconds"), (0, "7.pbs\n", "")]
    lines = []
    monkeypatch.setattr(
        batch_jobs, "_run_query", lambda line: (lines.append(line), answers.pop(0) if answers else RUNS)[1]
    )
    assert batch_jobs.submit("pbs", Job("train", "snakejob.sh", "", 1, 10, "A")) == "7.pbs"

    def starts(job_id):
        return subprocess.run([lines[0][-1]], env={**os.environ, "PBS_JOBID": job_id}, check=True)

    starts.lines = lines
    return starts


RUNS = (0, "    job_state = R\n", "")


@pytest.mark.case("submitted-twice", source="snakemake-executor-plugin-slurm#313, our own", right="one of both works")
def test_a_submission_whose_answer_was_lost_works_once(submitted, tmp_path):
    submitted("6.pbs")
    (next((tmp_path / ".cluster").glob("*/exit_code"))).unlink()  # it is still at work
    submitted("7.pbs")
    assert (tmp_path / "work").read_text() == "worked\n"
    assert batch_jobs.status("7.pbs") == "running", "it is the other one that is asked about"
    assert submitted.lines[-1][-1] == "6.pbs"
    submitted("6.pbs")  # which PBS starts again, as after a lost node
    assert (tmp_path / "work").read_text() == "worked\nworked\n"
    batch_jobs.cancel(["7.pbs"])
    assert submitted.lines[-1] == ["qdel", "7.pbs", "6.pbs"]


def test_no_job_of_a_submission_that_was_cancelled_begins_later(submitted, tmp_path):
    batch_jobs.cancel(["7.pbs"])
    submitted("6.pbs")
    assert not (tmp_path / "work").exists()


@pytest.mark.case("slurm-held", source="burrmill/burrmill#15, our own", right="told, and cancelled after three days")
@pytest.mark.parametrize("told", ["PENDING launch_failed_requeued_held", "PENDING JobHeldAdmin",
                                  "PENDING PartitionTimeLimit", "PENDING PartitionConfig",
                                  "PENDING job_requeued_in_held_state", "PENDING AssocGrpCPUMinutesLimit",
                                  "PENDING QOSMaxWallDurationPerJobLimit", "SUSPENDED None", "STOPPED None",
                                  "SPECIAL_EXIT job_requeued_in_held_state"])  # fmt: skip
def test_a_slurm_job_that_nobody_starts_is_held(told):
    assert state_of_slurm(*told.split()) is State.HELD


def state_of_slurm(state, reason="None"):
    """The `State` of a job in the answer of scontrol(1), shortened."""
    answer = f"JobId=4711 JobName=train QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=1"
    return BATCH_SYSTEMS["slurm"]().state(0, answer, "")


@pytest.mark.case("slurm-states", source="apel/apel#153, snakemake-executor-plugin-slurm#207", right="ended")
@pytest.mark.parametrize("state", ["REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                   "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED", "TIMEOUT", "FAILED"])  # fmt: skip
def test_a_slurm_job_that_has_ended_is_no_success(state):
    assert state_of_slurm(state) in (State.FAILED, State.OVER)


@pytest.mark.parametrize("told", ["PENDING Priority", "PENDING Resources", "PENDING QOSMaxJobsPerUserLimit",
                                  "PENDING ReqNodeNotAvail,_Reserved_for_maintenance", "PENDING BeginTime",
                                  "RUNNING None", "COMPLETING None", "CONFIGURING None", "REQUEUED None",
                                  "RESIZING None", "SIGNALING None", "STAGE_OUT None"])  # fmt: skip
def test_a_slurm_job_that_waits_for_its_turn_or_runs_goes_on(told):
    assert state_of_slurm(*told.split()) is State.RUNNING


RULES = [{"from_nodes": 184, "minutes": 720}, {"from_nodes": 92, "minutes": 360}, {"from_nodes": 1, "minutes": 120}]


@pytest.mark.case("queue-descending", source="olcf-user-docs, Frontier user guide", right="184: 720, 92: 360, 1: 120")
@pytest.mark.parametrize("rules", [RULES, RULES[::-1], [RULES[1], RULES[0], RULES[2]]])
def test_queue_rules_hold_in_any_order(rules):
    queue = {"queue": {"longest_minutes": rules}}
    found = {nodes: queues.find_longest_minutes(nodes, queue) for nodes in (184, 92, 91, 1)}
    assert found == {184: 720, 92: 360, 91: 120, 1: 120}


@pytest.mark.case("queue-duplicate-or-gap", source="our own", right="refused")
@pytest.mark.parametrize(("queue", "words"), [
    ({"longest_minutes": [*RULES, {"from_nodes": 92, "minutes": 60}]}, "from_nodes 92 is given twice"),
    ({"longest_minutes": RULES[:2]}, "no rule holds for jobs of 1 to 91 nodes"),
    ({"longest_minutes": RULES[:2], "smallest_nodes": 92}, None),
])  # fmt: skip
def test_queue_rules_that_say_two_things_or_none_are_refused(queue, words):
    if words is None:
        machine._check_queue(queue)
        return
    with pytest.raises(StudyError, match=words):
        machine._check_queue(queue)


@pytest.mark.case("hosts-in-order", source="open-mpi/ompi#11136, our own", right="ranks fill the hosts as listed")
def test_the_order_of_hosts_outlives_the_run_s_definition(monkeypatch):
    slots = {"z": 1, "a": 2, "m": 1}
    there = {**machine.load("local"), "hosts": slots, "nodes": 3, "ranks_per_node": 2}
    definition = inputs.define_run(expand(gpus=2)[0], there, "data")
    text = json.dumps(inputs.to_param(definition), sort_keys=True)  # as the rules pass it on
    found = run_layout.place_ranks(2, dict(inputs.from_param(json.loads(text)).machine["hosts"]))
    assert found == {"z": 1, "a": 1} and list(found) == ["z", "a"]


STALE = {"SLURM_JOB_ID": "123456", "SLURM_JOB_END_TIME": "1000", "SLURM_NODELIST": "n[1-4]", "PMI_RANK": "0",
         "OMPI_COMM_WORLD_SIZE": "8", "PBS_JOBID": "7.server", "LSB_JOBID": "9"}  # fmt: skip


@pytest.mark.case("stale-salloc", source="snakemake-executor-plugin-slurm#113", right="ignored without a scheduler")
def test_a_job_of_another_batch_system_is_not_the_run_s():
    local = machine.load("local")
    assert queues.read_job(STALE, local) is None
    assert launchers.remove_other_jobs({**STALE, "HOME": "/h"}, local) == {"HOME": "/h"}
    assert variables.remove_other_jobs is launchers.remove_other_jobs


@pytest.mark.case("stale-job-of-the-scheduler", source="our own", right="refused before the start")
def test_a_job_that_is_over_is_refused():
    job = queues.read_job(STALE, machine.load("perlmutter"))
    assert job == {"id": "123456", "ends_s": 1000.0}, "not that of PBS or LSF"
    with pytest.raises(StudyError, match="the batch job 123456 ended 3600 s ago; start again from a new shell"):
        queues.compute_seconds_left(job, now=4600)


@pytest.mark.case("forgotten-slurm-job", source="our own", right="refused before the start")
def test_a_job_that_slurm_does_not_know_any_more_is_refused(tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
    squeue.chmod(0o755)
    with pytest.raises(StudyError, match="Slurm does not know the job 9: it is over"):
        queues.read_job({"SLURM_JOB_ID": "9", "PATH": f"{tmp_path}:/usr/bin:/bin"}, machine.load("perlmutter"))


@pytest.mark.case(
    "hostfiles", source="open-mpi/ompi#11136, top500-benchmark#45", right="read, or refused with its line"
)
def test_host_files_of_other_tools(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("n1.example.org slots=2\nn2.example.org  slots = 2 # the second\n")
    assert machine.read_hosts(str(file)) == {"n1.example.org": 2, "n2.example.org": 2}
    for text, words in {"n1:4\n": "line 1: .* is not of the form", "n1\nn1\n": "line 2: n1 is listed twice",
                        "\ufeffn1 slots=2\n": "line 1"}.items():  # fmt: skip
        file.write_text(text, encoding="utf-8")
        with pytest.raises(StudyError, match=words):
            machine.read_hosts(str(file))
