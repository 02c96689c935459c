"""Start a run's ranks, wait for them, and record how the run ended; a failed run is a result too."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.communication import roles
from study.core import code_version, environment, free_space, isolation, provenance, validation
from study.core.boot import read_boot_id
from study.core.errors import StudyError
from study.core.files import find_target_name, sha256, write_json, write_sealed
from study.core.paths import OUTCOME, SCRIPTS, TIMED_OUT
from study.data import file_changes, source_state
from study.data.loaders import describe_source
from study.ensembles import members_table, votes
from study.experiment import conversions, finished_runs
from study.experiment.definition import RunDefinition
from study.experiment.training_code import State, digest_training_code, find_changed_file, read_code_state
from study.instruments import heartbeats
from study.instruments.power import sampling
from study.launch import failure, host_names, processes, program_files, run_directory, spots, supervision, variables
from study.machines import host_capabilities, host_check, launchers, machine_lock, queues, remote, run_layout
from study.machines.run_layout import Links
from study.training import checkpoints, program_results
from study.workloads import command
from study.workloads.command import content

KILL_S = 1.0  # in which a guard ends its ranks
OVERHEAD_S = 300  # longest time of a launch before and after its ranks
STALE_S = 60.0  # after which hosts are checked anew


def launch(
    run: RunDefinition,
    folder: str | Path,
    time_limit_s: float,
    job: dict[str, Any] | None = None,
    stall_limit_s: float = heartbeats.LIMIT_S,
) -> bool:
    """Train ``run`` in ``folder``, and write ``outcome.json`` there last; False if its outcome is there already.

    Another Snakemake may have trained it since this one planned it, so this is looked up once the folder is locked. The
    outcome of another definition, or of other data, is kept, see `run_directory.move_to_replaced`.

    job: the current batch job, from `study.machines.queues.read_job`. The run is ended if it takes longer than
    ``time_limit_s`` seconds, or if no rank sends a heartbeat for ``stall_limit_s`` seconds. Files of an earlier attempt
    without an outcome are removed first.
    Raises `StudyError` if nothing could be started; a run that started and failed is recorded, not raised.
    """
    folder = Path(folder)
    while True:
        with run_directory.lock_folder(folder, None if job else time_limit_s + OVERHEAD_S) as lock:
            if not (folder / OUTCOME).exists():
                with (
                    _hold_hosts(run, folder, time_limit_s, job is not None) as run_hosts,
                    _make_own_name_known(run) as line_prefix,
                ):
                    limits = supervision.Limits(
                        time_limit_s,
                        stall_limit_s,
                        lambda: heartbeats.read_latest_heartbeat(folder / "ranks"),
                        lambda now: queues.is_last_moment(job, now),
                    )
                    _train_and_record(run, folder, limits, job, run_hosts, line_prefix, lock)
                return True
            if finished_runs.is_finished(run, folder, functools.partial(finished_runs.has_other_sidecar, run)):
                return False
            run_directory.move_to_replaced(folder)  # with the lock on it: the new one has one of its own


def record_lost_run(run: RunDefinition, folder: str | Path) -> bool:
    """Record as failed a run whose batch job was lost: killed, preempted, or its node failed.

    A run is launched in `study.machines.queues.TRIES` jobs at most; a run whose job hit its walltime is not retried,
    unless it has a checkpoint. Returns whether the loss is recorded. It is not if a retry is due, if this run was not
    launched in the folder, or if it already has its outcome.
    """
    folder = Path(folder)
    with run_directory.lock_folder(folder):
        begun = _read_unfinished_launch(run, folder)
        if begun is None:
            return False
        last_heartbeat = max(path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
        kind, message = queues.describe_lost_job(begun["job"], last_heartbeat)
        goes_on = (folder / checkpoints.FOLDER).exists()  # another job may finish the run
        if begun["launches_lost"] < queues.TRIES and (kind != "timeout" or goes_on):
            return False
        if (folder / "ranks").exists():  # missing if the launch was lost between merging them and writing its outcome
            run_directory.merge_rank_files(folder, begun["hosts"])
        _write_outcome(
            folder,
            failure.describe_failure(folder, kind, message, log=_read_log_lines(folder / run_directory.LOG)),
            None,
            begun["wall_ns"],
            max(last_heartbeat, begun["wall_ns"]),  # of a file server's clock, which may have been set
        )
    return True


def set_aside_timed_out(folder: str | Path, extendable: bool) -> None:
    """Rename the outcome of a run that reached an estimated time limit, and raise `StudyError`.

    Snakemake then submits the run's job once more, and by the outcome's new name that attempt has more time.
    extendable: whether the limit was only estimated; else nothing is done.
    """
    outcome = Path(folder) / OUTCOME
    if not extendable or (validation.load_valid_json(outcome, "outcome")["failure"] or {}).get("kind") != "timeout":
        return
    outcome.replace(outcome.with_name(TIMED_OUT))
    raise StudyError(
        f"{folder}: the run reached its time limit, which was estimated from known times; it needs another attempt, "
        "which has more time"
    )


def _read_log_lines(log: Path) -> list[str]:
    """The lines of a log; none if it cannot be read."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _read_unfinished_launch(run: RunDefinition, folder: Path) -> dict[str, Any] | None:
    """Start time, batch job and hosts of a launch of ``run`` without an outcome, and how many there were; else None."""
    try:
        is_same_run = RunDefinition.read(folder / "run.yaml").fingerprint == run.fingerprint
        facts = validation.load_valid_json(folder / "provenance.json", "provenance")
    except StudyError:
        return None
    # Lost launches are counted by session.
    if not is_same_run or facts.get("session") != os.environ.get(environment.SESSION) or (folder / OUTCOME).exists():
        return None
    return {
        "job": facts.get("job"),
        "hosts": facts.get("hosts", []),
        "launches_lost": facts.get("launches_lost", 0) + 1,
        "wall_ns": (folder / "provenance.json").stat().st_mtime_ns,
    }


def _train_and_record(
    run: RunDefinition,
    folder: Path,
    limits: supervision.Limits,
    job: dict[str, Any] | None,
    run_hosts: _RunHosts,
    line_prefix: list[str],
    lock: int,
) -> None:
    """Start the ranks in a locked, checked place, wait for them, and write all files of the run."""
    conversions.check_run_files(run)
    file_changes.check_data(run.data)
    is_command = command.is_command(run.benchmark)
    program = [sys.executable, str(SCRIPTS / ("run_command.py" if is_command else "train.py")), str(folder)]
    limits = dataclasses.replace(limits, stall_s=min(limits.stall_s, run.benchmark.get("silence_limit_s", math.inf)))
    hosts, links, stall_limit_s = run_hosts.hosts, run_hosts.links, limits.stall_s
    line = [*line_prefix, *_make_command_line(run, folder, {**run.machine, "links": links}, program)]
    role_variables = (
        roles.build_rank_variables(launchers.get_launcher(run.machine).rank_variables)
        if _is_strategy_started_by_launcher(run)
        else {}
    )
    code_spec = [run.benchmark["name"]], run.framework, run.benchmark
    code_state, code = read_code_state(*code_spec), digest_training_code(*code_spec)
    rank_environment = variables.make_rank_environment(run, folder, stall_limit_s, in_job=job is not None)
    facts = {
        "training_code": code,
        "loader_sensor_code": code_version.digest_loader_and_sensors(run["loader"], run.machine["power_sensors"]),
        "launch_line": line,
        "job": job,
        "session": os.environ.get(environment.SESSION),
        "launches_lost": (_read_unfinished_launch(run, folder) or {"launches_lost": 0})["launches_lost"],
        "steering": environment.collect_steering(rank_environment),
        "isolation": isolation.find_problems(rank_environment),
        "data": _describe_data(run),
        "hosts": [asdict(host) for host in hosts],
        "timed_alone": run_hosts.as_dict(),
        **provenance.collect_provenance(rank_environment, run.framework),
        **(_describe_program(run) if is_command else {}),
    }
    run_directory.remove_leftovers(folder, keep={checkpoints.FOLDER} if _can_use_checkpoints(folder, facts) else set())
    (folder / "ranks").mkdir()
    files = program_files.ProgramFiles(run, folder) if is_command else None
    run.write(folder / "run.yaml")
    write_json(folder / "provenance.json", facts)

    with sampling.sample_with_launch(run.machine, _has_only_local_ranks(run), folder / "ranks", rank_environment):
        began_monotonic_ns = time.monotonic_ns()
        ended = supervision.run_launcher(
            line, rank_environment | role_variables, folder / run_directory.LOG, [lock, *run_hosts.descriptors], limits
        )
    _check_ranks_started(run, folder, ended.last_lines)
    ended_ns = _find_end_ns(folder, ended, began_monotonic_ns)
    _check_code(code_state)
    file_changes.check_data(run.data, are_copies=run["storage"] != "none" or bool(run["lustre_stripes"]))
    if links and (ended.stopped or failure.find_lost_host(ended.last_lines)):
        _wait_for_guards(stall_limit_s)
    if files:
        program_results.write_run_files(folder, run, files.finish())
    votes.write_combined_accuracies(folder, run)  # it reads what the ranks left, which is removed then
    run_directory.merge_rank_files(folder, facts["hosts"])
    members_table.write_members_table(folder, run)
    memory_kills = ended.killed_for_memory if _has_only_local_ranks(run) else 0
    cause = failure.diagnose_failure(folder, ended.exit_code, ended.stopped, ended.last_lines, memory_kills)
    _check_space(cause, folder, ended.last_lines, rank_environment)
    if cause is None:
        shutil.rmtree(folder / checkpoints.FOLDER, ignore_errors=True)
    workers_lost = 0 if role_variables and cause is None else processes.count_lost_workers(folder)
    _write_outcome(
        folder, cause, ended.exit_code, ended.began_wall_ns, ended_ns, began_monotonic_ns, workers_lost,
        ended.stood_still_s,
    )  # fmt: skip


def _check_code(before: State) -> None:
    """Raise `StudyError` if the code was changed while the run was at work: what it trained with is not known."""
    if changed := find_changed_file(before):
        raise StudyError(
            f"{changed}: was changed while the run was at work, so what it trained with is not known, and there is no "
            "record of it. Leave the code alone during runs, and give the same command again"
        )


def _find_end_ns(folder: Path, ended: supervision.LauncherEnd, began_monotonic_ns: int) -> int:
    """Wall-clock end of the run: if this process stood still, the end of the run's last process.

    A launch that was stopped (Ctrl-Z) sees the end of its ranks only when it goes on.
    """
    own = read_boot_id()
    if ended.stood_still_s and own and (last_ns := sampling.read_last_end_ns(folder / "ranks", own)) is not None:
        longest_ns = ended.ended_wall_ns - ended.began_wall_ns
        return ended.began_wall_ns + max(0, min(last_ns - began_monotonic_ns, longest_ns))
    return ended.ended_wall_ns


def _has_only_local_ranks(run: RunDefinition) -> bool:
    """True if all ranks run on this host: on the only node of a job, or without a batch system."""
    on_a_node = not launchers.get_launcher(run.machine).from_a_service_node
    return on_a_node and run.derived.nodes == 1 and not run.machine.get("hosts")


@dataclass(frozen=True)
class _RunHosts:
    """The checked hosts and links of a run, and the locks of the machines behind them."""

    hosts: list[host_check.Host]
    links: Links | None
    locks: list[machine_lock.Held] | None  # None in a batch job, which has nodes of its own

    @property
    def descriptors(self) -> list[int]:
        """File descriptors of the locks of this host."""
        return [descriptor for each in self.locks or [] for descriptor in each.descriptors]

    def as_dict(self) -> dict[str, Any] | None:
        """The provenance's entry: whether another run of this user's may have been timed meanwhile, by the locks."""
        return None if self.locks is None else machine_lock.summarize_locks(self.locks)


@contextlib.contextmanager
def _hold_hosts(run: RunDefinition, folder: Path, time_limit_s: float, in_job: bool) -> Iterator[_RunHosts]:
    """Check the run's hosts, and hold the lock of each one's machine where there is no batch system."""
    hosts, links = _check_hosts(run, folder)
    if in_job or not launchers.get_launcher(run.machine).on_own_hosts:  # then it has nodes of its own
        yield _RunHosts(hosts, links, None)
        return
    purpose, limit_s = f"{run.benchmark['name']} in {folder.resolve()}", time_limit_s + OVERHEAD_S
    own = read_boot_id()
    # By boot id: hosts that are one machine share its lock, and all runs take several in one order.
    by_machine: dict[str | None, str] = {
        host.boot_id: host.name for host in sorted(hosts, key=lambda host: host.boot_id)
    } or {own: ""}
    with contextlib.ExitStack() as stack:
        locks = [
            stack.enter_context(machine_lock.hold_lock_on(None if machine == own else name, purpose, limit_s))
            for machine, name in by_machine.items()
        ]
        if hosts and sum(each.waited_s for each in locks) > STALE_S:
            hosts, links = _check_hosts(run, folder)  # clocks have drifted since
        yield _RunHosts(hosts, links, locks)


@contextlib.contextmanager
def _make_own_name_known(run: RunDefinition) -> Iterator[list[str]]:
    """`host_names.make_names_known` where ranks run on this host; `host_check` looks up the names of listed hosts."""
    if not launchers.get_launcher(run.machine).on_own_hosts or run.machine.get("hosts"):
        yield []
        return
    with host_names.make_names_known() as line_prefix:
        yield line_prefix


def _check_ranks_started(run: RunDefinition, folder: Path, last_lines: list[str]) -> None:
    """Raise `StudyError` if the batch system kept the launcher from starting all ranks: nothing was trained.

    Without its definition the run does not count as launched, so the next job for it is not recorded as lost. Of an
    earlier attempt, the checkpoints and what tells whether they count are kept.
    """
    launcher, has_begun = launchers.get_launcher(run.machine), sampling.has_files_of_ranks(folder / "ranks")
    patterns = [launcher.in_part, None if has_begun else launcher.unanswered]
    refusal = next((line for line in last_lines for pattern in patterns if pattern and pattern.search(line)), None)
    if refusal:
        run_directory.remove_leftovers(folder, keep={checkpoints.FOLDER, "provenance.json"})
        raise StudyError(f"{run.machine['launcher']} could not start the ranks: {refusal}; submit the job again")


def _check_space(
    cause: dict[str, Any] | None, folder: Path, last_lines: list[str], variables: Mapping[str, str]
) -> None:
    """Raise `StudyError` if a run failed for want of space: then it is no result, and may be tried again.

    As in `_check_ranks_started`, the next job for it is not recorded as lost.
    """
    places = (folder, free_space.get_temporary_folder(variables), free_space.SHARED_MEMORY)
    if cause and (why := failure.find_lack_of_space(cause, last_lines, places)):
        (folder / "run.yaml").unlink(missing_ok=True)
        raise StudyError(f"{why}; {free_space.REMEDY}; see {folder / run_directory.LOG}")


def _wait_for_guards(stall_limit_s: float) -> None:
    """Wait until the guards of hosts that are out of reach have ended their ranks.

    Until then the run is not over: they may still write into its folder, and take cores from the next run.
    """
    limit_s = remote.compute_silence_s(stall_limit_s) + KILL_S
    print(f"waiting {limit_s:g} s: within them, a host that is out of reach ends its ranks by itself", file=sys.stderr)
    time.sleep(limit_s)


def _make_command_line(run: RunDefinition, folder: Path, machine: dict[str, Any], program: list[str]) -> list[str]:
    """The command line that starts a run's processes: of the machine's launcher, or of ours for strategies."""
    strategy, starts = roles.get_strategy(run), run.benchmark.get("starts", command.RANK)
    if starts == command.JOB:
        return program
    if starts == command.NODE:
        return launchers.make_command(run.derived.nodes, launchers.with_one_process_a_node(machine), program)
    if strategy == run_layout.HOROVOD:
        return launchers.make_command(run.ranks, machine, program)
    if _is_strategy_started_by_launcher(run):
        number = launchers.count_started(strategy, run.ranks, run["servers"], machine)
        return launchers.make_command(number, machine, program, ends_together=True)
    spots_text = spots.as_text(_list_spots(run, machine["links"]))
    numbers = [str(run.ranks), str(run["servers"])]
    return [sys.executable, str(SCRIPTS / "strategyrun.py"), strategy, *numbers, spots_text, str(folder), *program]


def _is_strategy_started_by_launcher(run: RunDefinition) -> bool:
    """True if the machine's launcher starts all processes of a strategy, which find their roles by rank."""
    return roles.get_strategy(run) != run_layout.HOROVOD and not launchers.get_launcher(run.machine).on_own_hosts


def _list_spots(run: RunDefinition, links: Links | None) -> list[spots.Spot]:
    """The spot of each process of a run with a strategy; empty if all are on this host."""
    if links is None:
        return []
    hosts = roles.list_hosts(run)
    is_local = {host: host_check.is_here(host) for host in set(hosts)}
    return [
        spots.Spot(None if is_local[host] else host, links.addresses[host], links.interfaces[host]) for host in hosts
    ]


def _check_hosts(run: RunDefinition, folder: Path) -> tuple[list[host_check.Host], Links | None]:
    """Check the hosts that the machine's file lists (`host_check.check_hosts`), and set the laboratory's link rate."""
    if not run.machine.get("hosts"):
        return [], None
    if run.machine.get("laboratory"):
        host_capabilities.set_link_rate(run["link_mbit_per_s"])
    data = [path for paths in run.data.values() for path in paths.values()]
    return host_check.check_hosts(dict(run.machine["hosts"]), folder, data, run.machine.get("interface"))


def _write_outcome(
    folder: Path,
    cause: dict[str, Any] | None,
    exit_code: int | None,
    begun_ns: int,
    ended_ns: int,
    begun_monotonic_ns: int | None = None,
    workers_lost: int | None = None,
    stood_still_s: float = 0.0,
) -> None:
    """Write ``outcome.json``, the last of a run's files.

    cause: its failure or None. workers_lost: None if unknown. stood_still_s: of the launching process.
    """
    write_sealed(
        folder / OUTCOME,
        {
            "status": "failed" if cause else "ok",
            "failure": cause,
            "workers_lost": workers_lost,
            "exit_code": exit_code,
            "started_wall_ns": begun_ns,
            "started_monotonic_ns": begun_monotonic_ns,
            "boot_id": None if begun_monotonic_ns is None else read_boot_id(),
            "runtime_s": (ended_ns - begun_ns) / 1e9,
            "stood_still_s": stood_still_s,
            "files": {
                path.name: sha256(path)
                for path in sorted(folder.iterdir())
                if path.is_file() and find_target_name(path) is None
            },
        },
    )


def _can_use_checkpoints(folder: Path, facts: dict[str, Any]) -> bool:
    """True if the earlier attempt used this code and these data; that a checkpoint is this run's is checked later."""
    try:
        before = validation.load_valid_json(folder / "provenance.json", "provenance")
    except StudyError:
        return False
    same_code = all(before.get(name) == facts[name] for name in ("training_code", "loader_sensor_code"))
    return same_code and _remove_conversion_notes(before["data"]) == _remove_conversion_notes(facts["data"])


def _remove_conversion_notes(data: dict[str, Any]) -> dict[str, Any]:
    """The data's descriptions without what differs when a conversion is made again."""
    return {file: {name: value for name, value in each.items() if name != source_state.NOTE}
            for file, each in data.items()}  # fmt: skip


def _describe_program(run: RunDefinition) -> dict[str, Any]:
    """The provenance of a run's own program: its folder's commit and its environment's packages."""
    packages = content.read_package_versions(run.benchmark)
    return {"git": provenance.read_git_state(run.benchmark["folder"]), "packages": packages}


def _describe_data(run: RunDefinition) -> dict[str, Any]:
    """Shapes of the run's converted files, and checksums of the files that they were made from."""
    return {file: describe_source(paths["sidecar"], paths.get("scaled")) for file, paths in run.data.items()}
