"""Start a run's ranks, wait for them, and record how the run ended; a failed run is a result too."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.communication import placement, roles
from study.core import checked, code_version, environment, isolation, provenance
from study.core.boot import boot_id
from study.core.errors import StudyError
from study.core.files import meant_for, sha256, write_json, write_sealed
from study.core.paths import OUTCOME, SCRIPTS, TIMED_OUT
from study.data import source_state, unchanged
from study.data.loaders import describe_source
from study.ensembles import members_table, votes
from study.experiment import conversions, finished
from study.experiment.code import training_code
from study.experiment.definition import RunDefinition
from study.instruments import calibration, heartbeats
from study.instruments.power import sampling
from study.launch import failure, own_name, processes, run_directory, spots, supervision, variables
from study.machines import host_capabilities, host_check, launchers, machine_lock, queues, remote, run_layout
from study.machines.run_layout import Links
from study.training import checkpoints, program_results
from study.workloads import command
from study.workloads.command import content

KILL_S = 1.0  # in which a guard ends its ranks
AROUND_S = 2 * calibration.TIMEOUT_S + 300  # longest time of a launch before and after its ranks
STALE_S = 60.0  # after which hosts are checked anew


def launch(
    run: RunDefinition,
    folder: str | Path,
    time_limit_s: float,
    job: dict[str, Any] | None = None,
    stall_limit_s: float = heartbeats.LIMIT_S,
    calibrated: bool = False,
) -> bool:
    """Run ``run`` in ``folder`` and write ``outcome.json`` there last; False if its outcome is there already.

    Another Snakemake may have trained it since this one planned it, so this is looked up once the folder is locked. The
    outcome of another definition, or of other data, is kept, see `run_directory.replace`.

    job: the current batch job, from `study.machines.queues.read_job`. The run is ended if it takes longer than
    ``time_limit_s`` seconds, or if no rank sends a heartbeat for ``stall_limit_s`` seconds. Files of an earlier attempt
    without an outcome are removed first. calibrated: whether `study.instruments.calibration` is timed before and after.
    Raises `StudyError` if nothing could be started; a run that started and failed is recorded, not raised.
    """
    folder = Path(folder)
    while True:
        with run_directory.alone_in(folder, None if job else time_limit_s + AROUND_S) as lock:
            if not (folder / OUTCOME).exists():
                with (
                    _alone_on_machine(run, folder, time_limit_s, job is not None) as place,
                    _own_name_known(run) as before,
                ):
                    limits = supervision.Limits(
                        time_limit_s,
                        stall_limit_s,
                        lambda: heartbeats.read_latest_heartbeat(folder / "ranks"),
                        lambda now: queues.is_last_moment(job, now),
                    )
                    _launch(run, folder, limits, job, place, before, lock, calibrated)
                return True
            if finished.is_finished(run, folder, functools.partial(finished.has_other_sidecar, run)):
                return False
            run_directory.replace(folder)  # with the lock on it: the new one has one of its own


def give_up(run: RunDefinition, folder: str | Path, tries: int) -> bool:
    """Record that ``run`` was launched in ``folder`` and its job was lost: killed, preempted, or its node failed.

    tries: the number of lost jobs. A run gets `study.machines.queues.TRIES` jobs; a run whose job hit its walltime is
    not retried, unless it has a checkpoint. Returns whether the loss is recorded. It is not if a retry is due, if this
    run was not launched in the folder, or if it already has its outcome.
    """
    folder = Path(folder)
    with run_directory.alone_in(folder):
        begun = _launched(run, folder)
        if begun is None:
            return False
        last_heartbeat = max(path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
        kind, message = queues.describe_lost_job(begun["job"], last_heartbeat)
        goes_on = (folder / checkpoints.FOLDER).exists()  # another job may finish the run
        if tries < queues.TRIES and (kind != "timeout" or goes_on):
            return False
        if (folder / "ranks").exists():  # missing if the launch was lost between merging them and writing its outcome
            run_directory.merge_ranks(folder, begun["hosts"])
        _write_outcome(
            folder,
            failure.described(folder, kind, message, log=_last_lines(folder / run_directory.LOG)),
            None,
            begun["wall_ns"],
            max(last_heartbeat, begun["wall_ns"]),  # of a file server's clock, which may have been set
        )
    return True


def set_aside(folder: str | Path, extendable: bool) -> None:
    """Keep a run that reached a time limit which was only estimated from being a result.

    Its outcome gets another name, by which the next attempt has more time, and `StudyError` is raised. Snakemake
    submits the run's job once more.
    """
    outcome = Path(folder) / OUTCOME
    if not extendable or (checked.load_json(outcome, "outcome")["failure"] or {}).get("kind") != "timeout":
        return
    outcome.replace(outcome.with_name(TIMED_OUT))
    raise StudyError(
        f"{folder}: the run reached its time limit, which was estimated from known times; it needs another attempt, "
        "which has more time"
    )


def _last_lines(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _launched(run: RunDefinition, folder: Path) -> dict[str, Any] | None:
    """Start time, batch job and hosts of a launch of ``run`` without an outcome; None if there is none."""
    try:
        same = RunDefinition.read(folder / "run.yaml").fingerprint == run.fingerprint
        facts = checked.load_json(folder / "provenance.json", "provenance")
    except StudyError:
        return None
    # Lost jobs are counted by session.
    if not same or facts.get("session") != os.environ.get(environment.SESSION) or (folder / OUTCOME).exists():
        return None
    return {
        "job": facts.get("job"),
        "hosts": facts.get("hosts", []),
        "wall_ns": (folder / "provenance.json").stat().st_mtime_ns,
    }


def _launch(
    run: RunDefinition,
    folder: Path,
    limits: supervision.Limits,
    job: dict[str, Any] | None,
    place: _Place,
    before_line: list[str],
    lock: int,
    calibrated: bool,
) -> None:
    conversions.check_run(run)
    unchanged.check_data(run.data)
    of_command = command.is_command(run.benchmark)
    program = [sys.executable, str(SCRIPTS / ("run_command.py" if of_command else "train.py")), str(folder)]
    hosts, links, stall_limit_s = place.hosts, place.links, limits.stall_s
    line = [*before_line, *_line(run, folder, {**run.machine, "links": links}, program)]
    by_rank = roles.variables_by_rank(launchers.get_launcher(run.machine).rank_variables) if _is_by_rank(run) else {}
    code = training_code([run.benchmark["name"]], run.framework, run.benchmark)
    of_ranks = variables.of_ranks(run, folder, stall_limit_s, in_job=job is not None)
    facts = {
        "training_code": code,
        "loader_sensor_code": code_version.loader_sensor_code(run["loader"], run.machine["power_sensors"]),
        "launch_line": line,
        "job": job,
        "session": os.environ.get(environment.SESSION),
        "steering": environment.steering(of_ranks),
        "isolation": isolation.problems(of_ranks),
        "data": _data(run),
        "hosts": [asdict(host) for host in hosts],
        "timed_alone": place.as_dict(),
        **provenance.collect(of_ranks, run.framework),
        **(_of_program(run) if of_command else {}),
    }
    run_directory.empty(folder, keep={checkpoints.FOLDER} if _checkpoints_count(folder, facts) else set())
    (folder / "ranks").mkdir()
    run.write(folder / "run.yaml")
    write_json(folder / "provenance.json", facts)

    number = calibration.count_processes(run.ranks, run.machine["cores_per_rank"])
    before = _calibrate(number) if calibrated else None
    with sampling.sample_with_launch(run.machine, _are_ranks_here(run), folder / "ranks", of_ranks):
        began_monotonic_ns = time.monotonic_ns()
        ended = supervision.execute(
            line, of_ranks | by_rank, folder / run_directory.LOG, [lock, *place.descriptors], limits
        )
    _refuse_unanswered(run, folder, ended.last_lines)
    ended_ns = _find_end_ns(folder, ended, began_monotonic_ns)
    after = _calibrate(number) if before else None
    unchanged.check_data(run.data)
    if links and (ended.stopped or failure.lost_host(ended.last_lines)):
        _outlast_guards(stall_limit_s)
    if of_command:
        program_results.assemble(folder, run)
    votes.join(folder, run)  # it reads what the ranks left, which is removed then
    run_directory.merge_ranks(folder, facts["hosts"])
    members_table.write(folder, run)
    if before and after:
        write_json(folder / calibration.FILE, calibration.summarize(before, after, number))
    killed = ended.killed_for_memory if _are_ranks_here(run) else 0
    why = failure.failure_of(folder, ended.exit_code, ended.stopped, ended.last_lines, killed)
    if why is None:
        shutil.rmtree(folder / checkpoints.FOLDER, ignore_errors=True)
    lost = 0 if by_rank and why is None else processes.workers_lost(folder)
    _write_outcome(
        folder, why, ended.exit_code, ended.began_wall_ns, ended_ns, began_monotonic_ns, lost, ended.stood_still_s
    )


def _find_end_ns(folder: Path, ended: supervision.Ended, began_monotonic_ns: int) -> int:
    """When the run ended, by the launching host's clock: where this process stood still, when its last process ended.

    A launch that was stopped (Ctrl-Z) sees the end of its ranks only when it goes on.
    """
    own = boot_id()
    if ended.stood_still_s and own and (last_ns := sampling.read_last_end_ns(folder / "ranks", own)) is not None:
        return ended.began_wall_ns + max(
            0, min(last_ns - began_monotonic_ns, ended.ended_wall_ns - ended.began_wall_ns)
        )
    return ended.ended_wall_ns


def _are_ranks_here(run: RunDefinition) -> bool:
    """Whether all ranks run on this host: on the only node of a job, or without a batch system."""
    on_a_node = not launchers.get_launcher(run.machine).from_a_service_node
    return on_a_node and run.derived.nodes == 1 and not run.machine.get("hosts")


@dataclass(frozen=True)
class _Place:
    """The hosts of a run and their links, checked, and the locks of the machines that they are."""

    hosts: list[host_check.Host]
    links: Links | None
    held: list[machine_lock.Held] | None  # None in a batch job, which has nodes of its own

    @property
    def descriptors(self) -> list[int]:
        """Of the locks of this host."""
        return [descriptor for each in self.held or [] for descriptor in each.descriptors]

    def as_dict(self) -> dict[str, Any] | None:
        """For the provenance: whether no other run of this user's was timed meanwhile, as far as locks can tell."""
        return None if self.held is None else machine_lock.summarize_locks(self.held)


@contextlib.contextmanager
def _alone_on_machine(run: RunDefinition, folder: Path, time_limit_s: float, in_job: bool) -> Iterator[_Place]:
    """Check the run's hosts and hold the lock of each machine that they are, on machines without a batch system."""
    hosts, links = _checked_hosts(run, folder)
    if in_job or not launchers.get_launcher(run.machine).on_own_hosts:  # then it has nodes of its own
        yield _Place(hosts, links, None)
        return
    purpose, limit_s = f"{run.benchmark['name']} in {folder.resolve()}", time_limit_s + AROUND_S
    own = boot_id()
    # By boot id: hosts that are one machine share its lock, and all runs take several in one order.
    by_machine: dict[str | None, str] = {
        host.boot_id: host.name for host in sorted(hosts, key=lambda host: host.boot_id)
    } or {own: ""}
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(machine_lock.hold_lock_on(None if machine == own else name, purpose, limit_s))
            for machine, name in by_machine.items()
        ]
        if hosts and sum(each.waited_s for each in held) > STALE_S:
            hosts, links = _checked_hosts(run, folder)  # clocks have drifted since
        yield _Place(hosts, links, held)


@contextlib.contextmanager
def _own_name_known(run: RunDefinition) -> Iterator[list[str]]:
    """As `own_name.made_known`, where ranks run on this host; `host_check` looks up the names of listed hosts."""
    if not launchers.get_launcher(run.machine).on_own_hosts or run.machine.get("hosts"):
        yield []
        return
    with own_name.made_known() as before:
        yield before


def _refuse_unanswered(run: RunDefinition, folder: Path, last_lines: list[str]) -> None:
    """Raise `StudyError` if the batch system did not let the launcher start all ranks: nothing was trained.

    Without its definition the run does not count as launched, so the next job for it is not recorded as lost. Of an
    earlier attempt, the checkpoints and what tells whether they count are kept.
    """
    launcher, has_begun = launchers.get_launcher(run.machine), sampling.has_files_of_ranks(folder / "ranks")
    patterns = [launcher.in_part, None if has_begun else launcher.unanswered]
    told = next((line for line in last_lines for pattern in patterns if pattern and pattern.search(line)), None)
    if told:
        run_directory.empty(folder, keep={checkpoints.FOLDER, "provenance.json"})
        raise StudyError(f"{run.machine['launcher']} could not start the ranks: {told}; submit the job again")


def _outlast_guards(stall_limit_s: float) -> None:
    """Wait until ranks that could not be ended from here have been ended by their own hosts' guards.

    Until then the run is not over: they may still write into its folder, and take cores from the next run.
    """
    limit_s = remote.compute_silence_s(stall_limit_s) + KILL_S
    print(f"waiting {limit_s:g} s: within them, a host that is out of reach ends its ranks by itself", file=sys.stderr)
    time.sleep(limit_s)


def _line(run: RunDefinition, folder: Path, machine: dict[str, Any], program: list[str]) -> list[str]:
    """The command line that starts the run's processes: the machine's launcher, or ours for TensorFlow's strategies."""
    strategy, starts = roles.strategy_of(run), run.benchmark.get("starts", command.RANK)
    if starts == command.JOB:
        return program
    if starts == command.NODE:
        return launchers.make_command(run.derived.nodes, launchers.with_one_process_a_node(machine), program)
    if strategy == run_layout.HOROVOD:
        return launchers.make_command(run.ranks, machine, program)
    if _is_by_rank(run):
        number = launchers.count_started(strategy, run.ranks, run["servers"], machine)
        return launchers.make_command(number, machine, program, ends_together=True)
    where = spots.as_text(_spots(run, machine["links"]))
    numbers = [str(run.ranks), str(run["servers"])]
    return [sys.executable, str(SCRIPTS / "strategyrun.py"), strategy, *numbers, where, str(folder), *program]


def _is_by_rank(run: RunDefinition) -> bool:
    """Whether the machine's launcher starts the processes of one of TensorFlow's strategies, equal ones."""
    return roles.strategy_of(run) != run_layout.HOROVOD and not launchers.get_launcher(run.machine).on_own_hosts


def _spots(run: RunDefinition, links: Links | None) -> list[spots.Spot]:
    """Where each process of a run with one of TensorFlow's strategies is; empty if all are on this host."""
    if links is None:
        return []
    on = placement.hosts_of(run)
    local = {host: host_check.is_here(host) for host in set(on)}
    return [spots.Spot(None if local[host] else host, links.addresses[host], links.interfaces[host]) for host in on]


def _calibrate(number: int) -> list[float] | None:
    """Time the host; None if that failed, which is told: a run is worth more than its calibration."""
    try:
        return calibration.time_rounds(number)
    except StudyError as error:
        print(f"warning: {error}", file=sys.stderr)
        return None


def _checked_hosts(run: RunDefinition, folder: Path) -> tuple[list[host_check.Host], Links | None]:
    """Check the hosts of a run that has any (`host_check.check_hosts`), and set the laboratory's link rate."""
    if not run.machine.get("hosts"):
        return [], None
    if run.machine.get("laboratory"):
        host_capabilities.set_link_rate(run["link_mbit_per_s"])
    data = [path for paths in run.data.values() for path in paths.values()]
    return host_check.check_hosts(dict(run.machine["hosts"]), folder, data, run.machine.get("interface"))


def _write_outcome(
    folder: Path,
    why: dict[str, Any] | None,
    exit_code: int | None,
    begun_ns: int,
    ended_ns: int,
    begun_monotonic_ns: int | None = None,
    workers_lost: int | None = None,
    stood_still_s: float = 0.0,
) -> None:
    """Write ``outcome.json``, the last of a run's files.

    why: its failure, or None. workers_lost: None if not known. stood_still_s: of the launching process.
    """
    write_sealed(
        folder / OUTCOME,
        {
            "status": "failed" if why else "ok",
            "failure": why,
            "workers_lost": workers_lost,
            "exit_code": exit_code,
            "started_wall_ns": begun_ns,
            "started_monotonic_ns": begun_monotonic_ns,
            "boot_id": None if begun_monotonic_ns is None else boot_id(),
            "runtime_s": (ended_ns - begun_ns) / 1e9,
            "stood_still_s": stood_still_s,
            "files": {
                path.name: sha256(path)
                for path in sorted(folder.iterdir())
                if path.is_file() and meant_for(path) is None
            },
        },
    )


def _checkpoints_count(folder: Path, facts: dict[str, Any]) -> bool:
    """Whether the earlier attempt used this code and these data; reading a checkpoint checks that it is of this run."""
    try:
        before = checked.load_json(folder / "provenance.json", "provenance")
    except StudyError:
        return False
    same_code = all(before.get(name) == facts[name] for name in ("training_code", "loader_sensor_code"))
    return same_code and _without_times(before["data"]) == _without_times(facts["data"])


def _without_times(data: dict[str, Any]) -> dict[str, Any]:
    """Of each file, what a conversion that is made again finds again."""
    return {file: {name: value for name, value in each.items() if name != source_state.NOTE}
            for file, each in data.items()}  # fmt: skip


def _of_program(run: RunDefinition) -> dict[str, Any]:
    """What the provenance has of a command instead of our own: its folder's commit, and its environment's packages."""
    found = content.packages(run.benchmark)
    return {"git": provenance.git_state(run.benchmark["folder"]), "packages": found}


def _data(run: RunDefinition) -> dict[str, Any]:
    """Shapes from the converted files' sidecars, and the checksums of the files that they were made from."""
    return {file: describe_source(paths["sidecar"], paths.get("scaled")) for file, paths in run.data.items()}
