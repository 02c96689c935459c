"""What we reach into Snakemake for, each tried with the installed one: this process runs a small workflow."""

import builtins
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_cluster_generic as cluster_generic
from snakemake import api, exceptions, jobs
from snakemake.scheduling.greedy import SchedulerSettings as GreedySettings
from snakemake.settings import types as settings
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from study.workflow import snakemake_internals

RULES = """
from pathlib import Path
from study.workflow import snakemake_internals
SEEN = builtins.seen_by_test
configfile: "config.yaml"
SEEN["workflow"] = workflow
SEEN["while read"] = {
    "folder": snakemake_internals.get_rules_folder(workflow),
    "is_main_process": snakemake_internals.is_main_process(workflow),
    "is_module": snakemake_internals.is_module(workflow),
    "is_job": snakemake_internals.is_job_process(
        workflow, ["make", "other"], Path(SEEN.get("ours", "Snakefile")).resolve(), SEEN.get("line", [])
    ),
    "deployment": snakemake_internals.list_deployment_methods(workflow),
    "given": snakemake_internals.read_config_sources(workflow),
}
ONE = "one"

def group(wildcards):
    snakemake_internals.set_group_components(workflow, {"small": 2})
    return "small"

rule all:
    default_target: True
    input: "1.txt", "2.txt"

rule make:
    output: "{number}.txt"
    group: group
    shell: "touch {output}"

onstart:
    SEEN["handlers"].append("start")
    SEEN["jobs"] = sorted(job.rule.name for job in snakemake_internals.list_jobs_to_run(workflow))
    SEEN["executor"] = snakemake_internals.get_executor(workflow)
    SEEN["resources"] = snakemake_internals.list_slurm_plugin_resources(workflow)
    SEEN["touches"] = snakemake_internals.is_touch_only(workflow)
    SEEN["limited"] = workflow.scheduler.job_rate_limiter
    snakemake_internals.stop_rate_limit(workflow)
    if "submitted" in SEEN and snakemake_internals.can_submit_commands(workflow, Path(SEEN["ours"]).resolve()):
        snakemake_internals.submit_commands(workflow, ["make"], SEEN["arranged"], SEEN["submitted"])
    for early in SEEN.get("early", []):
        Path(early).touch()
        snakemake_internals.expect_early_output(workflow, "make")

onsuccess:
    SEEN["handlers"].append("success")

onerror:
    SEEN["handlers"].append("error")

if snakemake_internals.is_module(workflow):
    snakemake_internals.use_handlers(workflow, onstart, onsuccess, onerror)
"""
OUTER = """
configfile: "outer.yaml"
module inner:
    snakefile: "inner/Snakefile"
    config: config
use rule * from inner
"""


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Whatever the rules put there while Snakemake reads them and runs."""
    found = {"handlers": []}
    monkeypatch.setattr(builtins, "seen_by_test", found, raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, RULES)
    return found


def write(folder, rules):
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(f"import builtins\n{rules}")
    (folder / "config.yaml").write_text("study: 007\nfrom_file: 1\n")


def run(
    executor="local", groups=None, per_second=10, methods=(), mode=settings.ExecMode.DEFAULT, forced=False,
    resources=None, submit=None, shared=None, **config
):  # fmt: skip
    """Have Snakemake run the Snakefile in this folder."""
    with api.SnakemakeApi(settings.OutputSettings(dryrun=executor == "dryrun", quiet={settings.Quietness.ALL})) as it:
        workflow = it.workflow(
            resource_settings=settings.ResourceSettings(
                cores=1, nodes=2 if submit else None, default_resources=resources
            ),
            config_settings=settings.ConfigSettings(**config),
            workflow_settings=settings.WorkflowSettings(exec_mode=mode),
            deployment_settings=settings.DeploymentSettings(deployment_method=set(methods)),
            storage_settings=settings.StorageSettings(shared_fs_usage=shared or settings.SharedFSUsage.all()),
            snakefile=Path("Snakefile"),
        )
        limit = settings.MaxJobsPerTimespan.parse_choice(f"{per_second}/1s")
        workflow.dag(settings.DAGSettings(forceall=forced)).execute_workflow(
            executor=executor,
            scheduling_settings=settings.SchedulingSettings(scheduler="greedy", max_jobs_per_timespan=limit),
            scheduler_settings=GreedySettings(),
            group_settings=settings.GroupSettings(group_components=groups or {}),
            **(_of_batch(submit) if submit else {}),
        )


def _of_batch(submit):
    return {
        "executor_settings": cluster_generic.ExecutorSettings(submit_cmd=submit),
        "remote_execution_settings": settings.RemoteExecutionSettings(seconds_between_status_checks=0.1),
    }


def test_a_module_s_folder_and_configuration_are_its_own(seen, tmp_path):
    write(tmp_path / "inner", RULES)
    (tmp_path / "outer.yaml").write_text("outer: 1\n")
    (tmp_path / "Snakefile").write_text(OUTER)
    run("dryrun")
    assert seen["while read"]["folder"] == tmp_path / "inner"
    assert seen["while read"]["is_module"]


def test_rules_of_the_user_s_own_snakefile_are_no_module(seen, tmp_path):
    run("dryrun", methods=[settings.DeploymentMethod.APPTAINER])
    told = seen["while read"]
    assert (told["folder"], told["is_module"]) == (tmp_path, False)
    assert "APPTAINER" in told["deployment"]
    assert seen["handlers"] == [], "a dry run calls none"


@pytest.mark.parametrize(("of_user", "packed"), [({}, 2), ({"small": 3}, 3)])
def test_groups_are_packed_as_we_or_the_user_say(seen, of_user, packed):
    run("dryrun", groups=of_user)
    assert snakemake_internals.get_group_components(seen["workflow"]) == {"small": packed}


@pytest.mark.parametrize(
    "line, mode, is_job",
    [
        ("--allowed-rules make --cores 1", settings.ExecMode.REMOTE, True),
        ("--cores 1 --allowed-rules make other", settings.ExecMode.REMOTE, True),
        ("--allowed-rules make all --cores 1", settings.ExecMode.REMOTE, False),
        ("--cores 1", settings.ExecMode.REMOTE, False),
        ("--allowed-rules make --cores 1", settings.ExecMode.DEFAULT, False),
    ],
)
def test_a_job_that_needs_some_rules_only(seen, line, mode, is_job):
    seen["line"] = line.split()
    run("dryrun", mode=mode)
    assert seen["while read"]["is_job"] is is_job


@pytest.mark.parametrize("expected", [True, False])
def test_files_may_be_there_early(seen, monkeypatch, expected):
    """Without the call, Snakemake warns of each; when that part fails, `expect_early_output` can go."""
    warned = []
    monkeypatch.setattr(jobs.logger, "warning", lambda text, *more, **others: warned.append(text))
    if not expected:
        monkeypatch.setattr(snakemake_internals, "expect_early_output", lambda workflow, rule: None)
    seen["early"] = ["1.txt"]
    run()
    assert any("not present when the DAG" in each for each in warned) is not expected


def test_a_module_s_handler_of_errors_is_called(seen, tmp_path):
    write(tmp_path / "inner", RULES.replace("touch {output}", "false"))
    (tmp_path / "outer.yaml").write_text("{}")
    (tmp_path / "Snakefile").write_text(OUTER)
    with pytest.raises(Exception, match="job|fail|error"):
        run()
    assert seen["handlers"] == ["start", "error"]


@pytest.mark.parametrize("mode", list(settings.ExecMode))
def test_the_main_process_is_no_job_s(seen, mode):
    run("dryrun", mode=mode)
    assert seen["while read"]["is_main_process"] is (mode == settings.ExecMode.DEFAULT)


def test_where_the_configuration_is_from(seen, tmp_path):
    (tmp_path / "mine.yaml").write_text("machine: theta\n")
    run("dryrun", configfiles=[Path("mine.yaml")], config={"gpus": 7}, config_args=["gpus=007"])
    given = seen["while read"]["given"]
    assert given.asked == [tmp_path / "mine.yaml"]
    assert [Path(file).name for file in given.read] == ["mine.yaml", "config.yaml", "mine.yaml"]
    assert given.arguments == ["gpus=007"]
    assert dict(given.values) == {"gpus": 7}
    assert dict(given.over) == {"machine": "theta", "gpus": 7}


def test_added_configuration_files_go_to_the_jobs(seen, tmp_path):
    """Before those that are there, which go over them."""
    run("dryrun", configfiles=[Path("config.yaml")])
    snakemake_internals.add_config_files(seen["workflow"], [tmp_path / "profile.yaml"])
    spawned = seen["workflow"].spawned_job_args_factory.general_args(seen["workflow"].executor_plugin.common_settings)
    assert spawned.index(str(tmp_path / "profile.yaml")) < spawned.index(str(tmp_path / "config.yaml"))


def test_the_jobs_to_run_are_those_whose_files_are_missing(seen, tmp_path):
    (tmp_path / "1.txt").touch()
    run()
    assert seen["jobs"] == ["all", "make"]
    assert type(seen["executor"]).__module__.startswith("snakemake.executors.local")
    assert callable(seen["executor"].run_job)


SUBMIT = {"executor": "cluster-generic", "submit": "bash"}  # a batch system that runs each job at once


@pytest.fixture
def submitted(seen, tmp_path):
    """Run the workflow on a batch system; the jobs whose own commands were submitted, with their folders."""
    (tmp_path / "Snakefile").write_text((tmp_path / "Snakefile").read_text().replace("    group: group\n", ""))
    found = []

    def line_of(lanes, file, latency_s):
        ((job,),) = lanes
        found.append((job, file))
        return ["bash", "-c", f"{job.command}; echo ours >> said by ours"]

    def submit(ours="Snakefile", **others):
        seen.update(ours=ours, submitted=line_of, arranged=lambda jobs: [jobs])
        run(**{**SUBMIT, **others})
        assert (tmp_path / "1.txt").exists() and (tmp_path / "2.txt").exists()
        return found

    return submit


def test_a_batch_job_s_own_command_is_submitted(submitted, tmp_path):
    """And Snakemake knows that it has ended; what it is told stands for its own line, within the executor's."""
    found = sorted(submitted(), key=lambda each: each[0].command)
    assert [job.command for job, _ in found] == ["touch 1.txt", "touch 2.txt"]
    assert [(job.inputs, job.outputs, job.logs) for job, _ in found] == [([], [f"{n}.txt"], []) for n in (1, 2)]
    assert {file.stem.partition(".")[2] for _, file in found} == {"1"}, "the first attempt"
    assert {file.parent.parent for _, file in found} == {tmp_path / ".snakemake"}
    assert (tmp_path / "said").read_text().split("\n") == ["ours by ours"] * 2 + [""]


@pytest.mark.parametrize(
    "others",
    [{"ours": "another"}, {"shared": frozenset(settings.SharedFSUsage.all() - {settings.SharedFSUsage.SOURCE_CACHE})}],
    ids=["a user's Snakefile", "files that are not shared"],
)
def test_a_snakemake_is_submitted_where_the_command_alone_would_be_wrong(submitted, others, monkeypatch):
    monkeypatch.setattr(
        RemoteExecutor, "format_job_exec", lambda self, job: f"{job.shellcmd} && {self.get_job_exec_suffix(job)}"
    )
    assert submitted(**others) == []


def test_a_group_s_commands_are_submitted_with_what_it_was_measured_to_need(seen, tmp_path):
    """In the lanes and the order that are asked for; what the group requests is not added up by Snakemake."""
    found = []

    def arrange(jobs):
        return [sorted(jobs, key=lambda job: job.output[0], reverse=True)]

    def line_of(lanes, file, latency_s):
        found.append([[job.command for job in lane] for lane in lanes])
        return ["bash", "-c", " && ".join(found[-1][0])]

    text = (tmp_path / "Snakefile").read_text()
    measured = (
        'snakemake_internals.measure_groups(workflow, ["make"], lambda jobs: {"nodes": 7, "runtime": len(jobs)})\n'
    )
    text = text.replace("rule all:", f"{measured}\nrule all:").replace(
        "    group: group\n", "    group: group\n    resources: nodes=2, runtime=5\n"
    )
    (tmp_path / "Snakefile").write_text(text)
    seen.update(ours="Snakefile", submitted=line_of, arranged=arrange)
    run(**{**SUBMIT, "submit": "echo {resources.nodes} {resources.runtime} > asked; bash"})
    assert found == [[["touch 2.txt", "touch 1.txt"]]]
    assert (tmp_path / "asked").read_text().split() == ["7", "2"]


def test_the_batch_job_of_a_snakemake_that_was_killed_is_known(seen):
    """As Snakemake notes it when it has submitted a job."""
    run("dryrun")
    assert snakemake_internals.find_batch_job(seen["workflow"], "1.txt") is None
    seen["workflow"].persistence._mark_incomplete("1.txt", "17")
    assert snakemake_internals.find_batch_job(seen["workflow"], "1.txt") == "17"
    assert snakemake_internals.find_batch_job(seen["workflow"], "2.txt") is None


HANGUP = """
from study.workflow import snakemake_internals

rule all:
    default_target: True
    input: "1.txt", "2.txt"

rule make:
    output: "{number}.txt"
    shell: "kill -HUP %d; sleep 0.5; touch {output}"

onstart:
    snakemake_internals.end_in_order_at_hangup(workflow)
"""


@pytest.fixture
def heeds_hangup():
    """SIGHUP and SIGTERM do nothing here, and have their former handlers after the test."""
    numbers = (signal.SIGHUP, signal.SIGTERM)
    former = [signal.signal(number, lambda *_: None) for number in numbers]
    yield
    for number, handler in zip(numbers, former, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeds_hangup", "seen")
def test_a_hangup_lets_the_job_at_work_end_and_leaves_no_lock(tmp_path):
    write(tmp_path, HANGUP % os.getpid())
    with pytest.raises(exceptions.WorkflowError):
        run()
    assert len(list(tmp_path.glob("?.txt"))) == 1
    assert not list(tmp_path.glob(".snakemake/locks/*"))


@pytest.mark.usefixtures("heeds_hangup")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_does_not_wait_for_the_lock_of_the_code_below_it(number):
    lock, has_ended = threading.Lock(), threading.Event()

    def end():
        if lock.acquire(timeout=10):
            has_ended.set()

    snakemake_internals.end_in_order_at_hangup(SimpleNamespace(scheduler=SimpleNamespace(exit_gracefully=end)))
    with lock:
        os.kill(os.getpid(), number)
    assert has_ended.wait(60), "if the signal waited, the lock would not have been there in time"


def test_a_locked_folder_s_message_is_ours(monkeypatch):
    monkeypatch.setattr(exceptions, "LockException", exceptions.LockException)
    snakemake_internals.replace_lock_message(lambda: "held by process 7")
    with pytest.raises(exceptions.WorkflowError, match="^held by process 7$"):
        raise exceptions.LockException()
