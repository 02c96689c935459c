"""All that reaches into Snakemake where it documents no way; the rest of the code leaves its objects alone.

Each function says why it is needed, and with which Snakemake it was tried. ``tests/unit/test_snakemake_internals.py``
tries each with the installed one. ``workflow`` is the object of this name in every Snakefile.
"""

import contextlib
import dataclasses
import io
import itertools
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snakemake import exceptions, jobs
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from study.core import signals
from study.launch.batch_job import BatchJob

ALLOWED = "--allowed-rules"  # on the command line of a job's Snakemake
Workflow = Any  # snakemake.workflow.Workflow: Snakemake has no types for it


def get_rules_folder(workflow: Workflow) -> Path:
    """Return the folder of the file with rules that is being read.

    ``workflow.basedir`` is that of the user's Snakefile, where ours is a module of it, and ``workflow.source_path``
    copies the file to a cache. Tried with 9.27.1.
    """
    return Path(str(workflow.current_basedir))


def is_main_process(workflow: Workflow) -> bool:
    """True if this is the Snakemake that the user started, and not that of one of its jobs.

    A job's Snakemake reads the rules too; it must not print the plan, nor ask the user's command line. Tried with
    9.27.1.
    """
    return bool(workflow.is_main_process)


def is_job_process(workflow: Workflow, rules: Collection[str], snakefile: Path, arguments: Sequence[str]) -> bool:
    """True if this is the Snakemake of a job of some of ``rules``, which needs none of the others in ``snakefile``.

    A user's Snakefile that includes that one may name the others, so there it is false. The settings are there only
    after the Snakefile was read, so the command line tells the job's rules. Tried with 9.27.1.

    arguments: of the command line.
    """
    if is_main_process(workflow) or Path(workflow.main_snakefile) != snakefile or ALLOWED not in arguments:
        return False
    after = arguments[arguments.index(ALLOWED) + 1 :]
    return set(itertools.takewhile(lambda word: not word.startswith("-"), after)) <= set(rules)


def is_module(workflow: Workflow) -> bool:
    """True if the file with rules that is being read belongs to a module of another workflow.

    Then the configuration files are that workflow's, and Snakemake ignores handlers. Tried with 9.27.1.
    """
    return not workflow.modifier.is_main_snakefile()


def is_dry_run(workflow: Workflow) -> bool:
    """True if the user only wants the plan (``-n``).

    The plan then has estimates that take seconds. The command line cannot tell, since a profile may ask for a dry run,
    too. Tried with 9.27.1.
    """
    return bool(workflow.output_settings.dryrun)


def is_touch_only(workflow: Workflow) -> bool:
    """True if Snakemake only sets the times of files (``--touch``), though it calls the handlers as if jobs ran.

    Then no run may be moved to make place for a new one. To be called in a handler. Tried with 9.27.1.
    """
    return bool(workflow.touch)


def is_forced(workflow: Workflow, rule: str, file: str) -> bool:
    """True if the user forces a rule's file to be made again: ``--forcerun``, ``--forceall``, ``--force``.

    A module's rule may have a prefix. To be called while the jobs are made: the settings are there only after the
    Snakefile was read. Tried with 9.27.1.
    """
    dag_settings = workflow.dag_settings
    is_named = any(each == file or (each.endswith(rule) and "/" not in each) for each in dag_settings.forcerun)
    return bool(dag_settings.forceall or is_named or (dag_settings.forcetargets and file in dag_settings.targets))


def force_files(workflow: Workflow, files: Iterable[str]) -> None:
    """Have Snakemake make files although they are there, and neither times nor its metadata tell of a change.

    To be called while the jobs are made. Tried with 9.27.1.
    """
    workflow.dag.forcefiles.update(files)


def list_deployment_methods(workflow: Workflow) -> list[str]:
    """List the methods by which Snakemake shall make environments (``--sdm``), such as CONDA.

    Some of them are refused, also if a profile asks for them. Tried with 9.27.1.
    """
    return [method.name for method in workflow.deployment_settings.deployment_method]


@dataclasses.dataclass(frozen=True)
class ConfigSources:
    """The sources of the values of ``config``.

    asked: the configuration files of the command line or the profile. read: all files, later ones over earlier ones.
    arguments: the texts ``KEY=VALUE`` of ``--config``. values: what Snakemake has made of these. over: ``values``, and
    those of ``asked``, which go over the Snakefile's configuration file.
    """

    asked: list[Path]
    read: list[str | Path]
    arguments: list[str]
    values: Mapping[str, Any]
    over: Mapping[str, Any]


def read_config_sources(workflow: Workflow) -> ConfigSources:
    """Read the sources of the values of ``config``.

    Snakemake reads its files by YAML 1.1 and makes numbers of names of digits, so that values must be read anew. Tried
    with 9.27.1.
    """
    settings = workflow.config_settings
    read = [*workflow.configfiles, *settings.configfiles]  # the latter are in both, and go over all
    return ConfigSources(
        list(settings.configfiles), read, list(settings.config_args or ()), settings.config, settings.overwrite_config
    )


def add_config_files(workflow: Workflow, files: Iterable[Path]) -> None:
    """Have Snakemake give its jobs these configuration files too, before those that it has.

    It replaces a profile's configuration file by one of the command line, although the machine stands in the former.
    This Snakemake does not read the files any more. Tried with 9.27.1.
    """
    workflow.config_settings.configfiles[:0] = files


def get_group_components(workflow: Workflow) -> dict[str, int]:
    """Get {group: runs of it in a job}, as ``--group-components`` or `set_group_components` set it.

    The settings are there only after the Snakefile was read. Tried with 9.27.1.
    """
    return dict(workflow.group_settings.group_components)


def set_group_components(workflow: Workflow, components: Mapping[str, int]) -> None:
    """Have Snakemake put so many runs of a group into one job, unless its own settings say otherwise.

    To be called while the jobs are made: after the Snakefile was read, when there are settings, and before jobs are
    grouped. A rule can name its group, but not how many of its jobs share one. Tried with 9.27.1.
    """
    if not get_group_components(workflow):
        workflow.group_settings = dataclasses.replace(workflow.group_settings, group_components=dict(components))


def measure_groups(
    workflow: Workflow, rules: Collection[str], measure: Callable[[list[Any]], Mapping[str, int]]
) -> None:
    """Have the batch jobs of groups of ``rules`` request what ``measure`` says for the group's jobs.

    Snakemake would request nodes for all jobs of a group at the same time. A module's rules may have a prefix. Tried
    with 9.27.1.
    """
    add_up = jobs.GroupResources.basic_layered

    def add_up_or_measure(toposorted_jobs: Sequence[Sequence[Any]], **others: Any) -> Mapping[str, Any]:
        resources = add_up(toposorted_jobs=toposorted_jobs, **others)
        group = list(itertools.chain.from_iterable(toposorted_jobs))
        is_ours = all(job.rule.name.endswith(tuple(rules)) and job.dag.workflow is workflow for job in group)
        return {**resources, **measure(group)} if is_ours else resources

    jobs.GroupResources.basic_layered = staticmethod(add_up_or_measure)


def find_batch_job(workflow: Workflow, file: str) -> str | None:
    """Find the id of the batch job, submitted by a Snakemake that was killed, whose output is ``file``; None without.

    To be called while the jobs are made. Tried with 9.27.1.
    """
    ids = set() if workflow.dag_settings.force_incomplete else workflow.persistence._get_external_jobids([file])
    return next(iter(ids), None)


def list_jobs_to_run(workflow: Workflow) -> list[Any]:
    """List the jobs that will run, each with ``rule``, ``wildcards`` and ``jobid``; to be called in a handler.

    What is refused depends on whether something is measured. Tried with 9.27.1.
    """
    return list(workflow.dag.needrun_jobs())


def expect_early_output(workflow: Workflow, rule: str) -> None:
    """Let files of the rule's jobs be there before these jobs start, without a warning; to be called in a handler.

    Another rule writes a first version of the report while the study runs. Tried with 9.27.1.
    """
    for job in list_jobs_to_run(workflow):
        if job.rule.name.endswith(rule):
            workflow.dag.reason(job).missing_output.clear()


def parse_command_line(arguments: Sequence[str]) -> Any:
    """Parse the command line and the profiles into options, such as ``executor`` and ``unlock``, also in a dry run.

    While the Snakefile is read, ``workflow`` does not have these. Snakemake would print once more which profiles it
    reads. Tried with 9.27.1.

    arguments: of Snakemake's command line.
    """
    from snakemake import cli  # imported late: it is there in Snakemake's own process only

    with contextlib.redirect_stderr(io.StringIO()):
        return cli.parse_args(list(arguments))[1]


def replace_lock_message(explain: Callable[[], str]) -> None:
    """Replace Snakemake's message on a folder that another one has locked. Tried with 9.27.1."""

    class Locked(exceptions.LockException):
        def __init__(self) -> None:
            exceptions.WorkflowError.__init__(self, explain())

    exceptions.LockException = Locked


def get_executor(workflow: Workflow) -> Any:
    """Get the executor plugin's object that submits jobs; to be called in a handler.

    Tried with 9.27.1.
    """
    return workflow.scheduler._executor


def list_slurm_plugin_resources(workflow: Workflow) -> list[str]:
    """List default resources that only Snakemake's plugin for Slurm reads, where another executor submits jobs.

    To be called in a handler. Tried with 9.27.1.
    """
    if type(get_executor(workflow)).__module__ == "snakemake_executor_plugin_slurm":
        return []
    resources = workflow.resource_settings.default_resources or {}
    return [name for name in resources if name.startswith("slurm_") or name in ("constraint", "qos")]


def can_submit_commands(workflow: Workflow, snakefile: Path) -> bool:
    """True if the commands of jobs can be submitted as they are, without a Snakemake that plans them anew.

    Not where files are not shared by all nodes, where Snakemake makes environments, and for a user's Snakefile that
    includes ``snakefile``: it may put a prefix before all shell commands. Tried with 9.27.1.
    """
    if Path(workflow.main_snakefile) != snakefile or list_deployment_methods(workflow):
        return False
    storage = workflow.storage_settings
    return set(storage.shared_fs_usage) == SharedFSUsage.all() and storage.default_storage_provider is None


def submit_commands(
    workflow: Workflow,
    rules: Collection[str],
    arrange: Callable[[list[Any]], list[list[Any]]],
    make_line: Callable[[list[list[BatchJob]], Path, float], list[str]],
) -> None:
    """Have the executor submit a line of ours for each job and each group of jobs of ``rules``; for a handler.

    Executors submit a Snakemake that plans the jobs anew. To be called if `can_submit_commands`. Tried with 9.27.1.

    arrange: the jobs of a group, or a single one, in lanes, in the order in which those of a lane shall run. make_line:
    makes the words of the line from the lanes, a file for them beside the executor's job scripts, which exist as long
    as its jobs, and the seconds to wait for files of other nodes.
    """
    remote_executor = get_executor(workflow)
    if not isinstance(remote_executor, RemoteExecutor):
        return
    format_as_snakemake = remote_executor.format_job_exec

    def read_command(job: Any) -> BatchJob:
        inputs, outputs, logs = (list(map(str, paths)) for paths in (job.input, job.output, job.log))
        limit_s = float(job.resources.get("time_limit_s", 0))
        return BatchJob(str(Path.cwd()), job.shellcmd, inputs, outputs, logs, limit_s)

    def format_job(job: Any) -> str:
        members = list(job.jobs) if job.is_group() else [job]
        if any(each.rule.name not in rules or each.rule.shellcmd is None for each in members):
            return str(format_as_snakemake(job))
        lanes = [[read_command(each) for each in lane] for lane in arrange(members)]
        file = Path(remote_executor.tmpdir, f"{job.jobid}.{job.attempt}.json")
        line = shlex.join(make_line(lanes, file, workflow.execution_settings.latency_wait))
        return " && ".join(
            filter(None, (remote_executor.get_job_exec_prefix(job), line, remote_executor.get_job_exec_suffix(job)))
        )

    remote_executor.format_job_exec = format_job


def stop_rate_limit(workflow: Workflow) -> None:
    """Take away the limit of jobs per second, also a default one; to be called in a handler.

    For this limit Snakemake selects jobs anew every second while a run trains, and once more per second for each run
    that has ended: in a study of hundreds of runs, most of a core that is measured. Tried with 9.27.1.
    """
    workflow.scheduler.job_rate_limiter = None


def end_in_order_at_hangup(workflow: Workflow) -> None:
    """Have Snakemake end at SIGHUP as at SIGTERM: no further job starts, and the lock is removed; for a handler.

    A closed terminal would kill it at once, and the folder would stay locked. A thread calls Snakemake's function,
    which takes a lock that the code below the signal may hold. Tried with 9.27.1.
    """
    end = workflow.scheduler.exit_gracefully
    signals.set_handlers(lambda *_: threading.Thread(target=end).start(), signals.TERMINATING)


def use_handlers(
    workflow: Workflow,
    onstart: Callable[..., object],
    onsuccess: Callable[..., object],
    onerror: Callable[..., object],
) -> None:
    """Have Snakemake call these handlers, as it does with those of the user's own Snakefile.

    It ignores handlers of a module. Without them, a job that the queue forbids would be submitted. The user's Snakefile
    could call ``NAME.onstart()``, but nothing would tell of a forgotten call. Tried with 9.27.1.
    """
    handlers = (each.func for each in (onstart, onsuccess, onerror))  # type: ignore[attr-defined]
    workflow._onstart, workflow._onsuccess, workflow._onerror = handlers
