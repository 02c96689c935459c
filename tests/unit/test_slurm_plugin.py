"""What is mended of Snakemake's plugin for Slurm, with the plugin's own executor and a fake Snakemake around it."""

import asyncio
import contextlib
import logging
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as plugin
from snakemake.iocontainers import ResourceList
from snakemake.resources import GroupResources
from snakemake.resources import Resources as Limits

from study.core.environment import SESSION
from study.core.errors import StudyError
from study.machines import machine, packing, queues, slurm_plugin


class Resources(dict):
    """As Snakemake's: by name and as attributes."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


class Job:
    """One of Snakemake's jobs."""

    name, wildcards, jobid, threads, pipe_group = "train", ("nt3", "point"), 1, 1, None

    def __init__(self, output, definition="{}"):
        self.output, self.params = [str(output)], {"definition": definition}
        self.resources, self.rule = Resources(runtime=6, cpus_per_task=1), SimpleNamespace(name="train")

    def is_group(self):
        return False


class Executor(plugin.Executor):
    """The plugin's, without a Snakemake; what it tells Snakemake is kept."""

    def __init__(self, folder):  # not the plugin's, which starts threads
        settings = SimpleNamespace(
            jobname_prefix="", requeue=False, qos=None, reservation=None, pass_command_as_script=False,
            status_attempts=1, init_seconds_before_status_checks=40, keep_successful_logs=False,
            status_command="squeue",
        )  # fmt: skip
        packing = SimpleNamespace(group_components={})
        self.workflow = SimpleNamespace(executor_settings=settings, workdir_init=str(folder), group_settings=packing)
        self.logger, self.slurm_logdir = logging.getLogger("test"), folder
        self._failed_nodes, self._submitted_job_clusters = set(), set()
        self._fallback_account_arg, self._fallback_partition, self._partitions = "", "", None
        self._preemption_warning, self._main_event_loop = False, None
        self._status_query_calls = self._status_query_failures = self._status_query_total_seconds = 0
        self._status_query_min_seconds, self._status_query_max_seconds = None, 0.0
        self._status_query_cycle_rows = []
        self._next_seconds_between_status_checks, self.run_uuid = 40, "another"
        self.status_rate_limiter = Unlimited()
        self.submitted, self.succeeded, self.failed = [], [], []

    def format_job_exec(self, job):
        return "true"

    def report_job_submission(self, info):
        self.submitted.append(info.external_jobid)

    def report_job_success(self, info):
        self.succeeded.append(info.external_jobid)

    def report_job_error(self, info, msg=None, **_):
        self.failed.append((info.external_jobid, msg))


class Unlimited:
    """A rate limiter without a limit."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return False


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A fake Slurm: programs on PATH that answer from files. ``slurm.jobs`` is what squeue lists."""
    Executor.__module__ = slurm_plugin.PLUGIN
    programs, answers = tmp_path / "bin", tmp_path / "answers"
    programs.mkdir()
    answers.mkdir()
    says = f'[ -e {answers}/down ] && {{ echo "Unable to contact slurm controller" >&2; exit 1; }}\n'
    script = {
        "squeue": f"{says}cat {answers}/jobs",
        "scontrol": f"{says}echo MinJobAge = 300 sec",
        "sbatch": f'echo "$@" >> {answers}/submissions\n[ -e {answers}/lost ] && {{ sh {answers}/lost; exit 1; }}\n'
        f"{says}echo 11",
    }
    for name, text in script.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (answers / "jobs").touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv(SESSION, f"{time.time_ns()}.1")
    monkeypatch.setattr(slurm_plugin, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(slurm_plugin, "GRACE_S", 0)
    monkeypatch.setattr(plugin.time, "sleep", lambda _: None)
    for name in ("get_submit_command", "query_job_status", "is_query_tool_available"):
        monkeypatch.setattr(plugin, name, getattr(plugin, name))  # so that it is put back
    monkeypatch.chdir(tmp_path)
    return answers


def mended(folder):
    executor = Executor(folder)
    slurm_plugin.mend(executor)
    return executor


def has_sacct(tmp_path, says):
    """As sacct(1) of Slurm 22.05 with AccountingStorageType=accounting_storage/none, and with a database."""
    program = {"disabled": "echo 'Slurm accounting storage is disabled' >&2; exit 1", "enabled": "exit 0"}[says]
    (tmp_path / "bin" / "sacct").write_text(f"#!/bin/sh\necho $* >> {tmp_path}/answers/asked\n{program}\n")
    (tmp_path / "bin" / "sacct").chmod(0o755)


def states(slurm, *rows):
    (slurm / "jobs").write_text("".join(f"{row}\n" for row in rows))


def submissions(slurm):
    return (slurm / "submissions").read_text().splitlines() if (slurm / "submissions").exists() else []


def checked(executor, *job_ids, output):
    """The ids of the jobs that go on after a check."""

    async def check():
        infos = [plugin.SubmittedJobInfo(Job(output), each, {"slurm_logfile": output}) for each in job_ids]
        return [info.external_jobid async for info in executor.check_active_jobs(infos)]

    return asyncio.run(check())


@pytest.mark.parametrize("given", ["sacct", "squeue"])
@pytest.mark.parametrize("min_job_age_s", [2, 300])
def test_where_accounting_is_disabled_squeue_tells_the_states(slurm, tmp_path, given, min_job_age_s):
    """If squeue forgets jobs soon, the plugin itself would ask sacct, whatever is given."""
    has_sacct(tmp_path, "disabled")
    (tmp_path / "bin" / "scontrol").write_text(f"#!/bin/sh\necho MinJobAge = {min_job_age_s} sec\n")
    executor = Executor(tmp_path)
    executor.workflow.executor_settings.status_command = given
    slurm_plugin.mend(executor)
    states(slurm, "7|RUNNING", "8|COMPLETED")
    assert checked(executor, "7", "8", output=tmp_path / "no") == ["7"]
    assert executor.succeeded == ["8"]
    assert len((slurm / "asked").read_text().splitlines()) == 1, "sacct is asked once, at the start"


def test_where_there_is_accounting_sacct_tells_the_states(slurm, tmp_path):
    has_sacct(tmp_path, "enabled")
    executor = Executor(tmp_path)
    executor.workflow.executor_settings.status_command = "sacct"
    slurm_plugin.mend(executor)
    checked(executor, "7", output=tmp_path / "no")
    assert "--parsable2" in (slurm / "asked").read_text().splitlines()[1]


@pytest.mark.parametrize(("given", "says", "refused"), [("sacct", "disabled", True), ("squeue", "disabled", False),
                                                        ("sacct", "enabled", False)])  # fmt: skip
def test_an_untested_plugin_without_accounting_is_refused(slurm, tmp_path, monkeypatch, capsys, given, says, refused):
    has_sacct(tmp_path, says)
    monkeypatch.setattr(slurm_plugin, "TESTED", "0")
    executor = Executor(tmp_path)
    executor.workflow.executor_settings.status_command = given
    with pytest.raises(StudyError) if refused else contextlib.nullcontext() as error:
        slurm_plugin.mend(executor)
    assert "so its faults are not mended" in capsys.readouterr().err
    assert not refused or str(error.value).endswith(
        "give --slurm-status-command squeue, or write slurm-status-command: squeue in the profile"
    )


def test_a_sacct_that_does_not_answer_is_left_alone(slurm, tmp_path, monkeypatch):
    has_sacct(tmp_path, "disabled")
    (tmp_path / "bin" / "sacct").write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(slurm_plugin, "SACCT_S", 0.1)
    executor = Executor(tmp_path)
    executor.workflow.executor_settings.status_command = "sacct"
    slurm_plugin.mend(executor)
    assert executor.get_status_command() == "sacct"


def test_a_job_is_named_by_what_it_makes_and_from_which_parameters(slurm, tmp_path):
    first, second = mended(tmp_path), mended(tmp_path)
    assert first.run_uuid == second.run_uuid, "a restarted Snakemake finds the jobs by their name"
    first.run_job(Job("a"))
    first.run_job(Job("a", definition="another"))
    comments = [
        line.split("--comment '")[1].split("'")[0] if "--comment '" in line else line for line in submissions(slurm)
    ]
    assert first.submitted == ["11", "11"] and len(set(comments)) == 2


@pytest.mark.parametrize(("ranks", "tasks"), [(1, ""), (6, "--ntasks-per-node=4")])
def test_a_job_with_gpus_asks_for_the_ranks_of_each_node(slurm, tmp_path, ranks, tasks):
    """With --ntasks-per-gpu, Slurm derives another number of GPUs; with --ntasks, it may place the ranks otherwise."""
    asked = queues.resources(lambda _: ranks, machine.load("perlmutter"), {}, lambda *_: 600.0)
    asked["runtime"] = asked["runtime"](None, 1)
    job = Job("a")
    job.resources = Resources({name: each(None) if callable(each) else each for name, each in asked.items()})
    mended(tmp_path).run_job(job)
    (line,) = submissions(slurm)
    assert [word for word in line.split() if word.startswith("--ntasks")] == tasks.split()
    assert f"--nodes={(ranks + 3) // 4} " in line and f"--gres=gpu:{min(ranks, 4)}" in line


class PackedJob(Job):
    """Runs in one job, whose resources Snakemake itself has combined."""

    def __init__(self, *resources):
        self.jobs = [Job(str(number)) for number in range(len(resources))]
        for job, each in zip(self.jobs, resources, strict=True):
            job.resources = ResourceList(fromdict=each)
        combined = GroupResources.basic_layered([self.jobs], Limits(), run_local=False)
        self.resources, self.threads = ResourceList(fromdict=combined), len(resources)

    def is_group(self):
        return True


def packed_line(slurm, folder, ranks, gpus_per_rank=0, smallest_nodes=2, ranks_per_node=4):
    """The words of the submission of runs of so many ranks."""
    on = {**machine.load("perlmutter"), "ranks_per_node": ranks_per_node, "gpus_per_rank": gpus_per_rank,
          "cores_per_rank": 16, "queue": {"smallest_nodes": smallest_nodes}}  # fmt: skip
    asked = []
    for number in ranks:
        found = queues.resources(lambda _, number=number: number, on, {}, lambda *_: 600.0)
        further = {name: each(None, 1) for name, each in found.items() if name in ("runtime", packing.LEAST_NODES)}
        plain = {name: each(None) if callable(each) else each for name, each in found.items() if name not in further}
        asked.append({**plain, **further, "mem_mb": 4000})
    mended(folder).run_job(PackedJob(*asked))
    (line,) = submissions(slurm)
    return set(line.split())


@pytest.mark.parametrize("gpus_per_rank", [0, 1])
def test_packed_runs_of_any_ranks_ask_for_the_cores_of_one_rank_for_each_task(slurm, tmp_path, gpus_per_rank):
    """Runs of 1, 3 and 4 ranks, each on a node of its own: 8 tasks of 16 cores on 3 nodes, not of 48 cores."""
    words = packed_line(slurm, tmp_path, [1, 3, 4], gpus_per_rank)
    assert {"--nodes=3", "--ntasks=8", "--cpus-per-task=16", "--mem", "4000"} <= words
    assert ("--gres=gpu:4" in words) == bool(gpus_per_rank)
    assert "15" in words, "minutes: 600 s and 5 minutes, once"


def test_packed_runs_that_do_not_fill_a_job_ask_for_its_smallest_size(slurm, tmp_path):
    """One run of one rank: a task for each of 6 nodes, since Slurm would leave out nodes without one."""
    words = packed_line(slurm, tmp_path, [1], smallest_nodes=6, ranks_per_node=1)
    assert {"--nodes=6", "--ntasks=6", "--cpus-per-task=16"} <= words


def test_a_killed_snakemake_s_job_is_not_submitted_again(slurm, tmp_path):
    key = slurm_plugin._key(Job("a"))
    states(slurm, f"7|RUNNING|rule_train_wildcards_nt3|point {key}", "8_[1-3]|PENDING|an array", "9|FAILED|rule " + key)
    executor = mended(tmp_path)
    executor.run_job(Job("a"))
    assert executor.submitted == ["7"] and not submissions(slurm)
    executor.run_job(Job("a", definition="another"))
    assert executor.submitted == ["7", "11"]


def test_what_the_shell_wants_of_squeue_hides_no_job(slurm, tmp_path, monkeypatch):
    """squeue(1): with SQUEUE_PARTITION set it lists that partition's jobs only."""
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text(squeue.read_text().replace("#!/bin/sh\n", '#!/bin/sh\n[ -n "$SQUEUE_PARTITION" ] && exit 0\n'))
    monkeypatch.setenv("SQUEUE_PARTITION", "debug")
    states(slurm, f"7|RUNNING|rule {slurm_plugin._key(Job('a'))}")
    executor = mended(tmp_path)
    executor.run_job(Job("a"))
    assert executor.submitted == ["7"] and not submissions(slurm)


def test_a_job_that_was_taken_over_and_failed_is_submitted_anew(slurm, tmp_path):
    states(slurm, f"7|RUNNING|rule {slurm_plugin._key(Job('a'))}")
    executor = mended(tmp_path)
    executor.run_job(Job("a"))
    executor.run_job(Job("a"))
    assert executor.submitted == ["7", "11"]


def test_a_job_that_ended_while_snakemake_started_counts_if_its_output_is_new(slurm, tmp_path):
    output = tmp_path / "outcome.json"
    states(slurm, f"7|COMPLETED|rule {slurm_plugin._key(Job(output))}")
    mended(tmp_path).run_job(Job(output))  # there is none
    output.touch()
    executor = mended(tmp_path)
    executor.run_job(Job(output))
    os.utime(output, (0, 0))
    mended(tmp_path).run_job(Job(output))  # of before
    assert executor.submitted == ["7"] and len(submissions(slurm)) == 2


def test_a_submission_without_an_answer_is_tried_again(slurm, tmp_path):
    executor = mended(tmp_path)
    (slurm / "lost").write_text(f"rm {slurm}/lost")
    executor.run_job(Job("a"))
    assert executor.submitted == ["11"] and len(submissions(slurm)) == 2 and not executor.failed


def test_a_job_whose_submission_got_no_answer_is_not_submitted_twice(slurm, tmp_path):
    executor = mended(tmp_path)
    row = f"12|PENDING|rule {slurm_plugin._key(Job('a'))}"
    (slurm / "lost").write_text(f"rm {slurm}/lost; echo '{row}' > {slurm}/jobs")
    executor.run_job(Job("a"))
    assert executor.submitted == ["12"] and len(submissions(slurm)) == 1


def test_a_submission_that_raises_is_told(slurm, tmp_path):
    executor = mended(tmp_path)
    job = Job("a")
    job.resources = None
    executor.run_job(job)
    ((_, said),) = executor.failed
    assert "NoneType" in said


def test_a_refused_submission_is_told(slurm, tmp_path):
    executor = mended(tmp_path)
    (slurm / "down").touch()
    thread = threading.Thread(target=executor.run_job, args=(Job("a"),))
    thread.start()
    thread.join()
    ((_, said),) = executor.failed
    assert "returned non-zero exit status" in said or "Unable to contact" in said


def test_no_job_is_forgotten_while_slurm_does_not_answer(slurm, tmp_path):
    executor = mended(tmp_path)
    (slurm / "down").touch()
    for _ in range(2 * slurm_plugin.GRACE_POLLS):
        assert checked(executor, "7", "8", output=tmp_path / "no") == ["7", "8"]
    assert not executor.succeeded and not executor.failed


@pytest.mark.parametrize("row", ["8|RUNNING", "7|PREEMPTED"])
def test_a_job_that_slurm_has_forgotten_is_judged_by_its_output(slurm, tmp_path, row):
    executor, output = mended(tmp_path), tmp_path / "outcome.json"
    states(slurm, row)
    for _ in range(slurm_plugin.GRACE_POLLS):
        assert checked(executor, "7", output=output) == ["7"]
    assert checked(executor, "7", output=output) == []
    assert [job_id for job_id, _ in executor.failed] == ["7"] and not executor.succeeded
    output.touch()
    os.utime(output, (0, 0))
    while checked(executor, "10", output=output):
        pass
    assert executor.failed[-1][0] == "10", "the output is that of an earlier run"
    output.touch()
    while checked(executor, "9", output=output):
        pass
    assert executor.succeeded == ["9"]


def test_states_are_judged_as_the_plugin_does(slurm, tmp_path):
    executor = mended(tmp_path)
    states(slurm, "7|RUNNING", "8|COMPLETED", "9|NODE_FAIL")
    assert checked(executor, "7", "8", "9", output=tmp_path / "log") == ["7"]
    assert executor.succeeded == ["8"] and [job_id for job_id, _ in executor.failed] == ["9"]


def test_a_job_that_stays_held_is_told_then_cancelled(slurm, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(slurm_plugin, "LOOK_S", 0)
    monkeypatch.setattr(slurm_plugin.commands, "run", note_cancelled(slurm_plugin.commands.run, cancelled := []))
    executor = mended(tmp_path)
    states(slurm, "7|PENDING|JobHeldAdmin", "8|PENDING|Priority")
    assert checked(executor, "7", "8", output=tmp_path / "no") == ["7", "8"]
    assert "Slurm's job 7 is held, suspended or cannot start: PENDING, JobHeldAdmin" in caplog.text
    monkeypatch.setattr(slurm_plugin, "HELD_S", 0)
    assert checked(executor, "7", "8", output=tmp_path / "no") == ["8"]
    assert executor.failed[0][0] == "7" and "JobHeldAdmin" in executor.failed[0][1]
    assert cancelled == [["scancel", "7"]]


def note_cancelled(run, cancelled):
    def noting(line, *arguments):
        if line[0] != "scancel":
            return run(line, *arguments)
        cancelled.append(line)
        return subprocess.CompletedProcess(line, 0, "", "")

    return noting


def test_nothing_is_submitted_where_squeue_does_not_tell_what_is_left(slurm, tmp_path):
    (slurm / "down").touch()
    with pytest.raises(StudyError, match="Unable to contact slurm controller"):
        mended(tmp_path)


def test_packed_jobs_of_a_killed_snakemake_are_not_submitted_beside(slurm, tmp_path):
    key = slurm_plugin._key(Job("a"))
    executor = Executor(tmp_path)
    executor.workflow.group_settings.group_components = {"nodes_1": 2}
    states(slurm, f"7|COMPLETED|snakemake {key}")
    slurm_plugin.mend(executor)
    states(slurm, f"7|RUNNING|snakemake {key}")
    with pytest.raises(StudyError, match="jobs of an earlier Snakemake are not over: 7; with --group-components"):
        slurm_plugin.mend(executor)


def test_another_version_is_not_mended_and_this_is_said(slurm, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slurm_plugin, "TESTED", "0.0.0")
    executor = mended(tmp_path)
    assert "run_job" not in vars(executor)
    assert "is not the tested version 0.0.0" in capsys.readouterr().err


def test_other_executors_stay_as_they_are():
    executor = SimpleNamespace()
    slurm_plugin.mend(executor)
    assert vars(executor) == {}


def test_the_plugin_forgets_jobs_unless_it_is_mended(slurm, tmp_path):
    """If this fails, the plugin was corrected, and what mends it may go."""
    (slurm / "down").touch()
    assert checked(Executor(tmp_path), "7", output=tmp_path / "no") == []
    assert subprocess.run(["squeue"], capture_output=True).returncode == 1
