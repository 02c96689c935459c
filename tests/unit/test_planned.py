"""What the rules get: the files of a study, what wildcards name, and what a job asks for."""

import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import GroupSettings

from study.core import environment, free_space
from study.core.errors import StudyError
from study.experiment import expansion
from study.machines import queues
from study.report import sources
from study.workflow import request, start, timed_plan, workflow_plan


def workflow(is_main=True, arguments=(), values=None, group_components=None, dryrun=False, resources=None):
    """Of Snakemake's object what `snakemake_internals` asks for."""
    return SimpleNamespace(
        is_main_process=is_main,
        touch=False,
        configfiles=[],
        config_settings=SimpleNamespace(
            configfiles=[], config_args=list(arguments), config=values or {}, overwrite_config={}
        ),
        modifier=SimpleNamespace(is_main_snakefile=lambda: True),
        deployment_settings=SimpleNamespace(deployment_method=()),
        output_settings=SimpleNamespace(dryrun=dryrun),
        group_settings=GroupSettings(group_components=group_components or {}),
        resource_settings=SimpleNamespace(default_resources=resources),
        dag_settings=SimpleNamespace(force_incomplete=False),
        persistence=SimpleNamespace(_get_external_jobids=lambda keys: set()),
        main_snakefile="of a test",
    )


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A function that plans a study on a machine."""
    monkeypatch.setenv(expansion.PLANNED, "")
    monkeypatch.setattr(environment, "prepare_for_jobs", lambda account, is_main_process: [])
    monkeypatch.setattr(sys, "argv", ["snakemake"])
    folders = {"data_dir": "data", "results_dir": str(tmp_path)}

    def make(study, machine, of=None, **given):
        config = {"study": study, "machine": machine, **folders, **given}
        of = of or workflow()
        return workflow_plan.Plan(request.load_request(config, of), config, of)

    return make


def wildcards(run, **others):
    benchmark, dataset, point = run.directory.split("/")
    return SimpleNamespace(benchmark=benchmark, dataset=dataset, point=point, **others)


def test_exports_are_made_last_and_those_of_runs_from_the_runs_alone(plan, monkeypatch):
    study = dataclasses.replace(expansion.load_study("smoke"), exports=("perfetto",))
    monkeypatch.setattr(expansion, "load_study", lambda *_: study)
    found = plan("smoke", "local")
    assert found.result_files[-1] == f"{found.folder}/exports/perfetto"
    assert found.list_export_inputs(SimpleNamespace(export="perfetto")) == [f"{found.folder}/runs.csv"]
    assert found.list_export_inputs(SimpleNamespace(export="archive")) == found.result_files[:-1]
    with pytest.raises(WorkflowError, match="there is no export csv; known: archive, "):
        found.list_export_inputs(SimpleNamespace(export="csv"))


def test_what_was_found_is_shown_after_each_block_that_is_to_come(plan):
    """Not after two blocks, which have no interval, nor after the last, whose findings are the study's."""
    found = plan("laptop", "local")
    last = max(run.repeat for run in found.study.runs)
    assert last > 4

    def shown(blocks):
        return [f"{found.folder}/logs/shown_after_block_{block}" for block in blocks]

    assert found.shown_early == shown(range(3, last))
    assert {run.repeat for run in found.list_runs_until(3)} == {1, 2, 3}
    for path in found.list_outcomes(found.list_runs_until(3)):
        Path(path).parent.mkdir(parents=True)
        Path(path).touch()
    assert plan("laptop", "local").shown_early == shown(range(4, last))
    assert plan("laptop", "summit").shown_early == [], "there, runs start side by side"


def test_wildcards_name_a_run_and_its_dataset(plan):
    found = plan("smoke", "local")
    run = found.study.runs[-1]
    assert found.get_run(wildcards(run)) is run
    for name in (run.dataset.raw_id, run.dataset.converted_id, run.dataset.scaled_id):
        assert found.get_dataset(SimpleNamespace(benchmark=run.dataset.benchmark, dataset=name)) is run.dataset


def test_a_definition_is_made_once_and_has_the_run_s_values(plan, monkeypatch):
    found = plan("smoke", "local")
    run = found.study.runs[0]
    first = found.define_run_as_json(wildcards(run))
    monkeypatch.setattr(workflow_plan.inputs, "define_run", None)
    assert found.define_run_as_json(wildcards(run)) is first
    assert json.loads(first)["parameters"]["gpus"] == run.gpus


def test_on_the_user_s_machine_a_job_takes_all_cores_and_is_not_tried_again(plan):
    found = plan("smoke", "local")
    assert (found.threads, found.retries, found.group, found.batch_jobs) == (1_000_000, 0, None, [])
    asks = found.make_resources()
    assert asks["time_limit_s"] == found.machine["time_limit_s"]
    assert (asks["extendable"], asks["jobs_lost"]) == (0, 0)
    assert found.make_loading_resources() == {}


def test_on_a_cluster_a_job_asks_for_nodes_and_a_lost_one_is_submitted_again(plan):
    found = plan("sc18", "summit")
    run = max(found.study.runs, key=lambda run: run.gpus)
    asks, named = found.make_resources(), wildcards(run)
    assert (found.threads, found.retries) == (1, 2)
    assert asks["nodes"](named) == math.ceil(run.gpus / 6)
    assert asks["time_limit_s"](named, attempt=1) == found.get_limit(named).limit_s
    assert asks["jobs_lost"](named, attempt=2) == 1
    assert asks["extendable"](named, attempt=1) == int(found.get_limit(named).is_estimated)
    assert found.make_loading_resources()["nodes"](named) == 1


def job_of(run, attempt=1):
    """Of Snakemake's job what the plan asks for."""
    return SimpleNamespace(rule=SimpleNamespace(name="train"), wildcards=wildcards(run), attempt=attempt,
                           output=[f"missing/{run.directory}"])  # fmt: skip


def test_runs_of_a_block_on_equally_many_nodes_have_a_group_in_the_block_s_order(plan, tmp_path):
    """What had ended when its job was lost is not made again, and the next job is shorter by that."""
    found = plan("icpp2019", "summit")
    runs = (run for run in found.study.runs if run.repeat == 2 and run.gpus == 3072)
    of_block = sorted(runs, key=lambda run: found.priorities[run.directory])  # the last comes first
    groups = {found.name_group(wildcards(run)) for run in of_block}
    assert groups == {"block_2_nodes_512"}
    jobs = [job_of(run) for run in of_block]
    (lane,) = found.arrange_lanes(jobs)
    places = [found.priorities[found.get_run(job.wildcards).directory] for job in lane]
    assert places == sorted(places, reverse=True)
    limits = [found.get_limit(wildcards(run)) for run in of_block]
    assert found.measure_group(jobs) == {"nodes": 512, "runtime": queues.sum_minutes(limits), "tasks": 3072}
    ended = SimpleNamespace(**{**vars(jobs[0]), "attempt": 2, "output": [str(tmp_path)]})
    again = [ended, *(job_of(run, attempt=2) for run in of_block[1:])]
    assert [len(lane) for lane in found.arrange_lanes(again)] == [len(jobs) - 1]
    assert found.measure_group(again)["runtime"] == queues.sum_minutes(limits[1:])


def test_runs_of_a_job_that_a_killed_snakemake_has_submitted_stay_in_it(plan, monkeypatch):
    found = plan("icpp2019", "summit")
    (one, other, *_) = [run for run in found.study.runs if run.repeat == 2 and run.gpus == 3072]
    monkeypatch.setattr(
        workflow_plan.snakemake_internals, "find_batch_job", lambda _, file: "17" if one.directory in file else None
    )
    assert found.name_group(wildcards(one)) == "resumed_17" != found.name_group(wildcards(other))
    assert found.components["resumed_17"] == 1


@pytest.mark.parametrize("study, machine", [("smoke", "local"), ("sc18", "summit")])
def test_a_batch_job_has_the_same_runs(plan, tmp_path, study, machine):
    """Else Snakemake would train in the job what the plan did not ask for."""
    found, of = plan(study, machine), workflow(is_main=False)
    config = {"study": study, "machine": machine, "data_dir": "data", "results_dir": str(tmp_path)}
    job = timed_plan.TimedPlan(request.load_request(config, of), config, of)
    assert job.retries == 0 and job.name_group(None) is None, "the main process submits again and groups"
    for run in found.study.runs:
        named = wildcards(run)
        assert job.define_run_as_json(named) == found.define_run_as_json(named)
        assert job.get_time_limit_s(named, attempt=1) == found.get_time_limit_s(named, attempt=1)
        assert job.priorities[run.directory] == found.priorities[run.directory]
    assert set(job.make_resources()) == set(found.make_resources())


def test_what_a_table_is_made_from(plan):
    found = plan("smoke", "local")
    made = found.list_result_inputs(sources.select_table_sources, "scaling")
    assert made["outcomes"]
    assert set(made["outcomes"]) <= set(found.timed)
    assert made["further"] == []
    assert found.describe_rows(sources.select_table_sources, "scaling") == found.describe_rows(
        sources.select_table_sources, "scaling"
    )
    with pytest.raises(WorkflowError, match="'scalng' is not one of"):
        found.list_result_inputs(sources.select_table_sources, "scalng")


@pytest.mark.parametrize(
    ("config", "values", "chooser", "study"),
    [
        ({"study": "smoke"}, {"study": "smoke"}, "--config chose it", "smoke"),
        ({"study": "smoke"}, {}, "a configuration file chose it", "smoke"),
        ({}, {}, "it is the default", "laptop"),
    ],
)
def test_who_chose_the_study(config, values, chooser, study, monkeypatch):
    monkeypatch.setenv(expansion.PLANNED, "")
    config = {"machine": "local", **config}
    found = request.load_request(config, workflow(values=values))
    assert (found.chooser, found.study.name, config["study"]) == (chooser, study, study)
    assert os.environ[expansion.PLANNED] == expansion.digest_study(found.study)


def test_a_name_of_digits_stays_a_text():
    config = {"study": 7, "machine": "local", "data_dir": "data", "results_dir": "results"}
    request.correct_config(config, workflow(is_main=False, arguments=["study=007"], values={"study": 7}))
    assert config["study"] == "007"


def test_a_profile_s_hidden_file_is_put_back(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("machine: theta\n")
    (tmp_path / "config.yaml").write_text(f"configfile: {tmp_path / 'mine.yaml'}\n")
    monkeypatch.setattr(sys, "argv", ["snakemake", "--profile", str(tmp_path)])
    config = {"study": "smoke", "machine": "local", "data_dir": "data", "results_dir": "results"}
    of = workflow()
    request.correct_config(config, of)
    assert config["machine"] == "theta"
    assert of.config_settings.configfiles == [tmp_path / "mine.yaml"], "the jobs get it too"


@pytest.fixture(autouse=True)
def build_snakemake_line(monkeypatch):
    """A function that sets the words of Snakemake's command line; at first it has none."""

    def write(*words):
        monkeypatch.setattr("sys.argv", ["snakemake", *words])

    write()
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    return write


@pytest.fixture
def started(plan, monkeypatch):
    """A function that starts a study whose jobs are of these rules; what was called, in order."""
    calls = []
    monkeypatch.setattr(start.plan, "check_account", lambda machine, variables: calls.append("account"))
    monkeypatch.setattr(start.model_checks, "list_refusals", lambda *_: calls.append("models") or ([], ["a warning"]))
    monkeypatch.setattr(start.versions, "keep_other_versions", lambda study, results: calls.append("versions"))
    monkeypatch.setattr(start.logger, "addHandler", lambda handler: calls.append("progress"))
    monkeypatch.setattr(start.snakemake_internals, "end_in_order_at_hangup", lambda workflow: None)

    def begin(study, machine, rules, config=None, **options):
        of = workflow(**options)
        found = plan(study, machine, of)
        runs = found.study.runs
        jobs = [
            SimpleNamespace(rule=SimpleNamespace(name=rule), jobid=number, wildcards=wildcards(runs[0]))
            for number, rule in enumerate(rules)
        ]
        of.dag = SimpleNamespace(needrun_jobs=lambda: jobs)
        of.scheduler = SimpleNamespace(_executor=None, job_rate_limiter="limited")
        start.prepare_jobs(found, config or {})
        return calls, of

    return begin


def test_the_models_and_the_account_are_checked_before_runs(started, capsys):
    calls, of = started("smoke", "local", ["convert_dataset", "train"])
    assert calls == ["account", "models", "progress"]
    assert "  Warning: a warning" in capsys.readouterr().err
    assert of.scheduler.job_rate_limiter is None


def test_data_are_prepared_without_them(started):
    assert started("smoke", "local", ["fetch_dataset", "convert_dataset"])[0] == ["progress"]


def test_a_job_s_own_snakemake_checks_the_account_only(started):
    assert started("smoke", "local", ["train"], {"keep_versions": True}, is_main=False)[0] == ["account"]


def test_runs_go_only_where_the_machine_s_file_says(plan, build_snakemake_line, monkeypatch, tmp_path):
    """Also in a plan, and where a profile for other workflows chooses the executor."""
    on_slurm, here = plan("smoke", "perlmutter"), plan("smoke", "local")
    build_snakemake_line("--executor", "cluster-generic")
    start.show_plan(on_slurm)
    with pytest.raises(StudyError, match="executor cluster-generic: machine local has no scheduler"):
        start.show_plan(here)
    (tmp_path / "config.yaml").write_text("executor: cluster-generic\n")
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(tmp_path))
    build_snakemake_line("-n")
    with pytest.raises(StudyError, match=f"unset SNAKEMAKE_PROFILE \\({tmp_path}\\)"):
        start.show_plan(here)


def test_a_cluster_s_runs_do_not_start_on_its_login_node(started, monkeypatch):
    with pytest.raises(StudyError, match="machine perlmutter: its runs would start on this host"):
        started("smoke", "perlmutter", ["train"])
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1800000000")
    assert "account" in started("smoke", "perlmutter", ["train"])[0]


def test_a_folder_that_snakemake_cannot_write_is_refused(plan, tmp_path, monkeypatch):
    """As on a read-only disk, where root may not write either."""
    planned_here = plan("smoke", "local")
    (tmp_path / ".snakemake" / "iocache").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    start.show_plan(planned_here)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "iocache")
    with pytest.raises(StudyError, match="iocache: Snakemake keeps its state .* folder of your own"):
        start.show_plan(planned_here)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StudyError, match="empty: Snakemake"):
        start.show_plan(planned_here)


@pytest.mark.parametrize(
    ("free", "fault"),
    [
        ({"f_bavail": 700}, "3 MB are free, 20 MB are needed"),
        ({"f_bavail": 0}, "0 MB are free, 20 MB are needed"),
        ({"f_favail": 0}, "no further file can be made there, by its number of inodes"),
        ({"f_bavail": 0, "f_blocks": 0}, None),  # its file system does not tell its size
    ],
)
def test_too_little_space_for_temporary_files_is_said(plan, monkeypatch, tmp_path, free, fault):
    planned_here = plan("smoke", "local_processes")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert start._list_space_problems(planned_here) == []
    state = {"f_blocks": 1e6, "f_bavail": 1e5, "f_frsize": 4096, "f_files": 9, "f_favail": 9, **free}
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(**state))
    right = [f"{tmp_path}: {fault}; set TMPDIR to another folder"] if fault else []
    assert start._list_space_problems(planned_here) == right


def test_horovod_s_launcher_needs_space_for_semaphores(plan, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != free_space.SHARED_MEMORY)
    (line,) = start._list_space_problems(plan("smoke", "local"))
    assert line.startswith("/dev/shm: you may not write there, or it is read-only; delete what was left there, have")
    assert start._list_space_problems(plan("smoke", "local_processes")) == []
