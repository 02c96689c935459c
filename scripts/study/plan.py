"""The plan of a study on a machine, shown before anything starts, and the checks that refuse it."""

import collections
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from study.compare import arms, noise_of_runs, reference_check, tuner
from study.compare.noise_of_runs import Noise
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS
from study.core import cores, validation
from study.core.errors import StudyError, StudyErrors
from study.core.files import (
    find_changed_since_read,
    find_replaced_since_read,
    has_changed,
    read_checksum_file,
    read_json,
)
from study.core.registry import submodule
from study.core.statistics import plan_detectable_ratio
from study.core.wording import format_count
from study.experiment import inputs, programs, published_times, run_order, schemas, walltimes
from study.experiment.ensemble import is_ensemble
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.workload import AVAILABLE
from study.experiment.study import Dataset, PlannedRun, Study
from study.experiment.walltimes import MACHINE, Limits
from study.machines import host_capabilities, launchers, queues, storage
from study.machines.machine import find_submit_program
from study.machines.queues import SharedJob, Timed
from study.records import attempts
from study.report import sources
from study.report.findings import declaration
from study.workloads import command

NO_FOLDER = "/nonexistent"  # of results: none is finished
LOADING = "loading"  # in the names of loading measurements among the runs of batch jobs
OF_LATER_EPOCHS = {"time_per_epoch_steady_s", "first_epoch_excess_s", arms.SPEED}  # columns that need two epochs
Machine = dict[str, Any]  # a machine's file with its name, see `study.machines.machine`


def summarize(
    study: Study,
    machine: Machine,
    limits: Limits | None = None,
    expected: Iterable[str] = (),
    chooser: str = "",
    noise: Noise = noise_of_runs.ASSUMED,
    batch_jobs: Sequence[SharedJob] | None = None,
) -> str:
    """Summarize a study's plan in lines: runs by benchmark and scaling, jobs, warnings, the machine's refusals.

    limits: of the runs; None for those without finished repeats. expected: lines of `study.prediction.forecast`.
    chooser: who chose the study, such as "--config chose it". noise: for the power of its comparisons. batch_jobs: of
    `share_batch_jobs`.
    """
    limits = limits or Limits(study.runs, NO_FOLDER, machine)
    jobs = share_batch_jobs(study, machine, limits) if batch_jobs is None else batch_jobs
    lines = [
        f"Study {study.name} on machine {machine['name']}: {format_count(len(study.runs), 'run')}. {study.description}"
    ]
    if chooser:
        lines.append(f"  {chooser}; another study: --config study=NAME (docs/studies.md lists them)")
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in study.runs:
        groups.setdefault((run["benchmark"], run["scaling"]), []).append(run)
    for (benchmark, scaling), planned in groups.items():
        ranks = sorted({run.gpus for run in planned})
        loaders = dict.fromkeys(run["loader"] for run in planned if run.kind != command.KIND)
        loaded = f", loaders {', '.join(loaders)}" if loaders else ""
        lines.append(
            f"  {benchmark} {scaling} scaling: {format_count(len(planned), 'run')} on {_format_ranks(ranks)}"
            f"{loaded}{_describe_staging(planned)}{_describe_expected_failures(planned)}"
        )
    lines += _list_parts(study)
    for entry in study.loading:
        lines.append(
            f"  {entry.dataset.benchmark} loading: {entry.repeats} x {', '.join(entry.loaders)}, "
            f"dataset {entry.dataset.id}"
        )
    files = inputs.estimate_file_bytes(study, machine, "data")
    if (gigabytes := sum(files.values()) / 1e9) >= 1:
        lines.append(
            f"  disk: at most {gigabytes:,.4g} GB in {format_count(len(files), 'file')} or folders "
            "of datasets, with those that are generated, converted and copied"
        )
    if study.runs and (most := attempts.count_further_attempts(machine)):
        lines.append(f"  {attempts.describe_further_attempts(most)}")
    lines += _describe_batch_jobs(study, machine, jobs, limits)
    lines += _warn_of_long_runs(study, machine, limits)
    lines += _warn_of_shared_cores(study, machine)
    lines += _warn_of_missing_verdicts(study)
    lines += [f"  Warning: {line}" for line in list_comparisons_without_verdict(study, machine, jobs, limits)]
    lines += [f"  {line}" for line in programs.describe_threads(study.runs, machine)]
    warnings = [
        *programs.warn_of_undivided_samples(study.runs),
        *programs.warn_of_unknown_owners(study.runs),
        *programs.warn_of_hidden_exit_codes(study.runs),
    ]
    lines += [f"  Warning: {line}" for line in warnings]
    lines += [f"  {line}" for line in [*tuner.describe_power(study, noise), *_describe_power_of_findings(study, noise)]]
    lines += expected
    refusals = list_refusals(study, machine, limits)
    if refusals:
        lines.append("  This can be planned but not started here:")
        lines += [f"    {line}" for line in refusals]
    return "\n".join(lines)


def describe_variables(removed: Iterable[str], machine: Machine) -> list[str]:
    """Say which variables of the shell the runs do not get, as they could change a number."""
    names = [name for name in removed if name not in machine.get("environment", {})]
    where = f"environment in config/machines/{machine['name']}.yaml"
    return [f"runs do not get these variables of this shell: {', '.join(names)} ({where} sets some)"] if names else []


def _list_parts(study: Study) -> list[str]:
    """List the number of runs of each part of the study, such as a paper's figures."""
    lines, earlier_keys = [], set[tuple[Any, ...]]()
    for part, runs in study.parts.items():
        keys = {run.key for run in runs}
        repeated = len(keys & earlier_keys)
        overlap = f" ({repeated} of them in an earlier part)" if repeated else ""
        lines.append(f"  {part}: {format_count(len(keys), 'run')}{overlap}{_describe_expected_failures(list(runs))}")
        earlier_keys |= keys
    return lines


def list_timed_jobs(study: Study, limits: Limits) -> list[Timed]:
    """List the timed jobs, each run and each loading measurement, with what their batch jobs need."""
    return [*map(limits.get_limit, study.runs), *(limits.get_load_limit() for _ in study.loading)]


def share_batch_jobs(study: Study, machine: Machine, limits: Limits) -> list[SharedJob]:
    """Divide the study's runs and loading measurements among batch jobs; empty without a batch system.

    Their names are directories. What `_group_compared_runs` groups stays together if the queue allows it.
    """
    if "scheduler" not in machine:
        return []
    loads = [f"{LOADING}/{each.directory}" for each in study.loading]
    timed: dict[str, Timed] = {run.directory: limits.get_limit(run) for run in run_order.sort_runs(study.runs)}
    timed |= dict.fromkeys(loads, limits.get_load_limit())
    groups = _group_compared_runs(study, machine)
    in_blocks = [(runs[0].repeat, [run.directory for run in runs]) for runs in groups]
    return queues.share_jobs([*in_blocks, *((None, [name]) for name in loads)], timed, machine)


def _group_compared_runs(study: Study, machine: Machine) -> list[list[PlannedRun]]:
    """Group a block's runs on equally many nodes that a finding or the arms of a baseline compare."""
    compared = _group_compared_points(study)
    groups: dict[tuple[int, int, str], list[PlannedRun]] = {}
    for run in study.runs:
        key = (run.repeat, run.count_nodes(machine), compared.get(run.point, run.point))
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _group_compared_points(study: Study) -> dict[str, str]:
    """{point: one of the points that findings or arms compare with it, directly or by others}."""
    groups: dict[str, set[str]] = {}
    arms_of_runs = [{arm.baseline, run.point} for run in study.runs for arm in run.arms]
    arms_of_findings = [
        {run.point for runs in declaration.select_arms(declaration.load_finding(name), study).values() for run in runs}
        for name in study.findings
    ]
    for points in [*arms_of_findings, *arms_of_runs]:
        whole = points.union(*(groups.get(point, ()) for point in points))
        groups |= dict.fromkeys(whole, whole)
    return {point: min(group) for point, group in groups.items()}


def list_comparisons_without_verdict(
    study: Study, machine: Machine, batch_jobs: Iterable[SharedJob], limits: Limits
) -> list[str]:
    """List the findings, and the arms of tuning, that can have no verdict here, with the reason."""
    lanes = queues.index_lanes(batch_jobs)
    groups = {run.directory: group for group in _group_compared_runs(study, machine) for run in group}
    lines = []
    for finding in map(declaration.load_finding, study.findings):
        runs_of_arms = declaration.select_arms(finding, study).values()
        blocks = set.intersection(*({run.repeat for run in runs} for runs in runs_of_arms))
        if len(blocks) < LEAST_BLOCKS:
            lines.append(
                f"finding {finding.name}: no verdict: {len(blocks)} of at least {LEAST_BLOCKS} blocks; set repeats"
            )
        elif divided := _find_divided_group([run for runs in runs_of_arms for run in runs], lanes, groups, machine):
            lines.append(f"finding {finding.name}: {_explain_divided_group(divided, machine, limits)}")
    return lines + _list_arms_without_verdict(study, machine, lanes, groups, limits)


def _list_arms_without_verdict(
    study: Study,
    machine: Machine,
    lanes: Mapping[str, tuple[str, ...]],
    groups: Mapping[str, list[PlannedRun]],
    limits: Limits,
) -> list[str]:
    """List the arms that are in other batch jobs than their baseline, those with the same reason together."""
    runs_of_points = {(run.point, run.repeat): run for run in study.runs}
    names: dict[tuple[str, str], dict[str, None]] = {}
    for run, arm in [(each, arm) for each in study.runs for arm in each.arms]:
        baseline = runs_of_points[arm.baseline, run.repeat]
        if divided := _find_divided_group([baseline, run], lanes, groups, machine):
            where = f"{run['benchmark']} on {_format_ranks([run.gpus])}"
            reason = _explain_divided_group(divided, machine, limits)
            names.setdefault((where, reason), {})[arm.name] = None
    return [f"tuning of {where}, {', '.join(arms)}: {reason}" for (where, reason), arms in names.items()]


def _find_divided_group(
    compared: Iterable[PlannedRun],
    lanes: Mapping[str, tuple[str, ...]],
    groups: Mapping[str, list[PlannedRun]],
    machine: Machine,
) -> list[PlannedRun] | None:
    """Find the group of compared runs, of a block on equally many nodes, that is in several batch jobs, or None."""
    first: dict[tuple[int, int], PlannedRun] = {}
    for run in compared if lanes else ():
        other = first.setdefault((run.repeat, run.count_nodes(machine)), run)
        if lanes[other.directory] != lanes[run.directory]:
            return groups[run.directory]
    return None


def _explain_divided_group(group: list[PlannedRun], machine: Machine, limits: Limits) -> str:
    """Explain why no comparison of runs in several batch jobs has a verdict."""
    minutes = queues.sum_minutes(map(limits.get_limit, group))
    return (
        f"no verdict here: the {len(group)} runs of a block on {format_count(group[0].count_nodes(machine), 'node')} "
        f"that are compared need {minutes} minutes one after the other, more than a job may have "
        f"({queues.name_longest(machine)} in config/machines/{machine['name']}.yaml); give them a shorter "
        "walltime_minutes if they need less"
    )


def _describe_batch_jobs(study: Study, machine: Machine, jobs: Sequence[SharedJob], limits: Limits) -> list[str]:
    """Describe the batch jobs that the study needs; empty for a machine without a batch system."""
    if "scheduler" not in machine:
        return []
    modes: dict[str, list[Timed]] = {}
    for run in study.runs:
        modes.setdefault(run["scaling"], []).append(limits.get_limit(run))
    if study.loading:
        modes["loading"] = [limits.get_load_limit()] * len(study.loading)
    hours = {mode: _sum_own_node_hours(each, machine) for mode, each in modes.items()}
    sizes = [(each.nodes, each.minutes) for each in jobs]
    total = queues.sum_node_hours(sizes)
    hours_by_mode = ", ".join(f"{mode} {each:,.0f}" for mode, each in hours.items())
    other_hours = total - sum(hours.values())
    lines = [
        f"  {machine['scheduler']}: {format_count(len(jobs), 'job')} of {_format_minutes(sizes)}; "
        f"if every run took its whole time limit, {total:,.0f} node-hours ({hours_by_mode}"
        + (f", starts and idle nodes {other_hours:,.0f})" if other_hours > 0.5 else ")")
    ]
    lines += _describe_walltimes(study, machine, limits)
    shared = [each for each in jobs if sum(map(len, each.lanes)) > 1]
    if shared:
        alone = [queues.measure_job([[each]], machine) for each in list_timed_jobs(study, limits)]
        lines.append(
            f"  runs of a block on equally many nodes are made one after the other in one job: "
            f"{sum(len(lane) for each in shared for lane in each.lanes)} of them share "
            f"{format_count(len(shared), 'job')}; each alone: {len(alone)} jobs, "
            f"{queues.sum_node_hours(alone):,.0f} node-hours"
        )
    return lines + _describe_divided_blocks(study, machine, jobs)


def _describe_divided_blocks(study: Study, machine: Machine, jobs: Sequence[SharedJob]) -> list[str]:
    """Say where a block's runs on equally many nodes are too long for one job."""
    runs = study.runs_by_directory
    parts: dict[tuple[int, int], int] = collections.Counter()
    for lane in (lane for job in jobs for lane in job.lanes if lane[0] in runs):
        first = runs[lane[0]]
        parts[first.count_nodes(machine), first.repeat] += 1
    most: dict[int, int] = {}
    for (nodes, _), number in parts.items():
        if nodes >= queues.get_smallest_nodes(machine):
            most[nodes] = max(number, most.get(nodes, 0))
    divided = ", ".join(f"{format_count(nodes, 'node')} {most[nodes]}" for nodes in sorted(most) if most[nodes] > 1)
    return (
        [f"  a block's runs need several jobs, since {queues.name_longest(machine)} lets none be so long, on {divided}"]
        if divided else []
    )  # fmt: skip


def _sum_own_node_hours(runs: Iterable[Timed], machine: Machine) -> float:
    """Sum the node-hours of the runs' own nodes and time limits, without what their jobs have beside them."""
    return sum(launchers.count_nodes(run.ranks, machine) * run.limit_s for run in runs) / 3600


def _format_minutes(jobs: Iterable[tuple[int, int]]) -> str:
    """Format the minutes of jobs, (nodes, minutes) each, or their range."""
    minutes = sorted({each for _, each in jobs})
    return f"{minutes[0]} minutes" if len(minutes) == 1 else f"{minutes[0]} to {minutes[-1]} minutes"


def _describe_walltimes(study: Study, machine: Machine, limits: Limits) -> list[str]:
    """Describe the sources of the runs' time limits, and the node-hours of runs with published times."""
    run_limits = [limits.get_limit(run) for run in study.runs]
    sources = collections.Counter(each.source for each in run_limits)
    if list(sources) in ([], [MACHINE]):
        return []
    source_counts = ", ".join(f"{source} for {format_count(number, 'run')}" for source, number in sources.most_common())
    lines = [f"  walltimes by {source_counts}"]
    published = [(run, seconds) for run in study.runs if (seconds := published_times.estimate_runtime_s(run, machine))]
    if published:
        hours = sum(run.count_nodes(machine) * seconds for run, seconds in published) / 3600
        lines.append(
            f"  by the paper's times, {format_count(len(published), 'run')} "
            f"({', '.join(dict.fromkeys(run['benchmark'] for run, _ in published))}) would use {hours:,.0f} node-hours"
        )
    return lines


def _warn_of_long_runs(study: Study, machine: Machine, limits: Limits) -> list[str]:
    """Warn of runs that train longer than their time limit, by published times or counted operations."""
    never: dict[str, list[tuple[PlannedRun, float]]] = {}
    limited: dict[str, list[tuple[PlannedRun, float]]] = {}
    for run in study.runs:
        seconds, source = walltimes.estimate_training_s(run, machine)
        if seconds is not None and seconds > limits.get_limit(run).limit_s:
            too_long = never if seconds > _find_longest_s(run, machine) else limited
            too_long.setdefault(source, []).append((run, seconds))
    lines = []
    for source, runs in never.items():
        most = max(_find_longest_s(run, machine) for run, _ in runs)
        lines.append(
            f"{_describe_long_runs(runs, source)}; the queue lets a run of these sizes take {most / 3600:.1f} h "
            f"at most ({queues.name_longest(machine)}): leave these points out, or give fewer epochs, or they end as "
            "timeout; with checkpoint_epochs another job goes on, but such a run is in no mean"
        )
    for source, runs in limited.items():
        longest = max(seconds for _, seconds in runs)
        lines.append(
            f"{_describe_long_runs(runs, source)}; time_limit_s is {machine['time_limit_s']}: raise it in "
            f"config/machines/{machine['name']}.yaml above {longest:,.0f} s and add the loading, or give fewer epochs, "
            "or they end as timeout"
        )
    return [f"  Warning: {line}" for line in lines]


def _find_longest_s(run: PlannedRun, machine: Machine) -> float:
    """Find the longest time limit (s) that the queue allows a run in a job of its own size."""
    nodes = max(run.count_nodes(machine), queues.get_smallest_nodes(machine))
    return queues.find_longest_s(nodes, machine)


def _warn_of_shared_cores(study: Study, machine: Machine) -> list[str]:
    """Warn of runs whose processes on this host have fewer cores than they should: they will be oversubscribed.

    Elsewhere a batch system gives each rank its cores, or the hosts are asked when the run starts.
    """
    if not host_capabilities.starts_ranks_here(machine):
        return []
    usable = cores.count_usable_cores()
    needed = [(run.gpus, number) for run in study.runs
              if (number := host_capabilities.count_cores_needed(run.parameters, machine)) > usable]  # fmt: skip
    if not needed:
        return []
    ranks = _format_ranks(sorted({gpus for gpus, _ in needed}))
    return [
        f"  Warning: {format_count(len(needed), 'run')} on {ranks} share cores: with cores_per_rank: "
        f"{machine['cores_per_rank']} they need up to {max(number for _, number in needed)}, and this machine has "
        f"{usable:g}; such runs are marked oversubscribed and enter no finding: leave these numbers out of gpus, or "
        f"write gpus: {AVAILABLE}"
    ]


def _warn_of_missing_verdicts(study: Study) -> list[str]:
    """Warn of arms that cannot have a verdict, or of which `make tune` can pick none."""
    compared = [(run, arm) for run in study.runs for arm in run.arms if arm.switches]
    few = [arm for arm, blocks in collections.Counter((arm.baseline, arm.name) for _, arm in compared).items()
           if blocks < LEAST_BLOCKS]  # fmt: skip
    short = {(arm.baseline, arm.name) for run, arm in compared if run.epochs_per_rank < 2}
    lines = []
    if few:
        lines.append(
            f"{format_count(len(few), 'arm')} of tuning with fewer than {LEAST_BLOCKS} repeats: the table gives no "
            "verdict for fewer; set repeats in the grid"
        )
    if short:
        lines.append(
            f"{format_count(len(short), 'arm')} of tuning with one epoch a rank: throughput is that of the epochs "
            "after the first; set epochs to 2 or more"
        )
    if study.screening_blocks and (why := tuner.explain_too_few_blocks(study)):
        lines.append(why)
    return [f"  Warning: {line}" for line in lines]


def _describe_power_of_findings(study: Study, noise: Noise) -> list[str]:
    """Describe the difference that the study's findings detect with 80 % probability."""
    blocks = min((run.repeat for run in _list_last_repeats(study)), default=0)
    if not study.findings or blocks < LEAST_BLOCKS:
        return []
    least = plan_detectable_ratio(noise.deviation, blocks, 0.05)
    return [
        f"findings: with {blocks} blocks, if runs of a block differ by {noise.words}, a difference of "
        f"{100 * (least - 1):.2g} % is found with probability 0.8; repeats added later change no verdict"
    ]


def list_findings_without_value(study: Study) -> list[str]:
    """List findings whose quantity some of their runs cannot have, since it needs a second epoch."""
    lines = []
    for finding in map(declaration.load_finding, study.findings):
        compared = [run for runs in declaration.select_arms(finding, study).values() for run in runs]
        short = sum(run.epochs_per_rank < 2 for run in compared)
        quantities = [finding.quantity, *([finding.along] if finding.along else [])]
        columns = OF_LATER_EPOCHS.intersection(name for each in quantities for name in each.columns)
        if short and columns:
            lines.append(
                f"finding {finding.name}: {short} of {format_count(len(compared), 'run')} can have no {min(columns)}, "
                "which "
                "is that of the epochs after the first: set epochs so that each rank trains two or more, or compare "
                "another quantity"
            )
    return lines


def _list_last_repeats(study: Study) -> list[PlannedRun]:
    """List the last repeat of each point that a finding may compare."""
    last = {run.point: run for run in sorted(study.runs, key=lambda run: run.repeat)}
    return [run for run in last.values() if run.repeat >= LEAST_BLOCKS]


def _describe_long_runs(runs: list[tuple[PlannedRun, float]], source: str) -> str:
    """Describe runs that are too long: how many, which points, how long the longest trains."""
    ranks: dict[str, set[int]] = {}
    for run, _ in runs:
        ranks.setdefault(f"{run['benchmark']} {run['scaling']} scaling", set()).add(run.gpus)
    points = "; ".join(f"{kind} on {_format_ranks(sorted(counts))}" for kind, counts in ranks.items())
    return (
        f"{len(runs)} runs ({points}) are too long: by {source}, training alone takes up to "
        f"{max(seconds for _, seconds in runs) / 3600:.1f} h"
    )


def _describe_staging(runs: list[PlannedRun]) -> str:
    """Describe the ways of staging of runs; empty without staging."""
    ways = dict.fromkeys(run["staging"] for run in runs)
    return "" if list(ways) == ["none"] else f", staging {', '.join(ways)}"


def _describe_expected_failures(runs: list[PlannedRun]) -> str:
    """Say how many runs may fail; empty if none."""
    number = sum(run.may_fail is not None for run in runs)
    return f"; {number} may fail" if number else ""


def list_refusals(study: Study, machine: Machine, limits: Limits | None = None) -> list[str]:
    """List the reasons why points of the study cannot run on the machine, or cannot be started here."""
    timed_jobs = list_timed_jobs(study, limits or Limits(study.runs, NO_FOLDER, machine))
    where = f"config/machines/{machine['name']}.yaml"
    program = find_submit_program(machine)
    lines: list[str] = []
    if "unsupported" in machine:
        lines.append(f"{where}: unsupported: {machine['unsupported']}")
    if study.runs and not launchers.is_installed(program):
        lines.append(f"{where}: {program} is not on PATH here")
    if "node_storage" not in machine and any(run["staging"] == "local_copy" for run in study.runs):
        lines.append(f"{where}: node_storage is missing, the folder of a node's own that staging: local_copy copies to")
    lines += [f"{where}: {line}" for line in storage.list_refusals((run["storage"] for run in study.runs), machine)]
    if no_stripes := storage.refuse_stripes((run["lustre_stripes"] for run in study.runs), machine):
        lines.append(f"{where}: {no_stripes}")
    laboratory_refusal = host_capabilities.refuse_outside_laboratory(machine)
    if laboratory_refusal:
        lines.append(f"{where}: {laboratory_refusal}")
    for rate in sorted({run["link_mbit_per_s"] for run in study.runs}):
        if rate_refusal := host_capabilities.refuse_rate(rate, machine):
            lines.append(f"config/studies/{study.name}.yaml: {rate_refusal}")
    if attempts_refusal := attempts.explain_refusal(machine):
        lines.append(f"{where}: {attempts_refusal}")
    lines += [f"config/studies/{study.name}.yaml: {line}" for line in _refuse_values(study, machine)]
    lines += [f"{where}: {line}" for line in _refuse_shared_gpus(study, machine)]
    return lines + _refuse_sizes(timed_jobs, machine)


def _refuse_shared_gpus(study: Study, machine: Machine) -> list[str]:
    """Refuse rank counts above the number of this host's GPUs; empty where GPUs are shared or cannot be counted."""
    capacity = host_capabilities.find_capacity(machine)
    if capacity is None or capacity.shared != host_capabilities.GPUS:
        return []
    too_many = {run.gpus for run in study.runs if run.gpus > capacity.ranks}
    ranks = sorted(count for count in too_many if launchers.refuse_ranks(count, machine) is None)
    if not ranks:
        return []
    return [
        f"gpus_per_rank: {machine['gpus_per_rank']}: CUDA shows fewer GPUs here than {_format_ranks(ranks)} need; "
        f"leave these numbers out of gpus, or write gpus: {AVAILABLE}"
    ]


def _refuse_sizes(timed_jobs: list[Timed], machine: Machine) -> list[str]:
    """Refuse rank counts that the machine does not have, and jobs that its queue does not take."""
    where, lines = f"config/machines/{machine['name']}.yaml", list[str]()
    for each in sorted(set(timed_jobs), key=lambda each: (each.ranks, each.limit_s)):
        ranks_refusal = launchers.refuse_ranks(each.ranks, machine)
        if ranks_refusal:
            keys = "hosts" if machine.get("hosts") else "ranks_per_node, nodes"
            lines.append(f"{where}: {keys}: {ranks_refusal}")
        elif queue_refusal := queues.refuse_run(each, machine):
            lines.append(f"{where}: {queue_refusal}")
    return list(dict.fromkeys(lines))


def _refuse_values(study: Study, machine: Machine) -> list[str]:
    """Refuse values of grid keys that the machine cannot have, one line per key and reason."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for run in study.runs:
        for name, parameter in PARAMETERS.items():
            if parameter.refuse_on and (reason := parameter.refuse_on(run, machine)):
                counts[name, reason] += 1
    return [f"{name} ({format_count(number, 'run')}): {reason}" for (name, reason), number in counts.items()]


def check_account(machine: Machine, variables: Mapping[str, str]) -> None:
    """Raise `StudyError` if the machine's jobs need an account and none is set, or if it cannot be one's name."""
    if "scheduler" not in machine:
        return
    account = variables.get("STUDY_ACCOUNT")
    if account and not re.fullmatch(validation.read_schema("config")["properties"]["account"]["pattern"], account):
        raise StudyError(f"STUDY_ACCOUNT: {account!r} is no account; it has letters, digits, '_', '.' and '-' only")
    if not account:
        raise StudyError(
            f"machine {machine['name']} submits batch jobs: name the account or project that they are charged to, with "
            "--config account=PROJECT, in config/config.yaml, or in the variable STUDY_ACCOUNT"
            + ("; where Slurm has no accounts, any word will do" if machine["scheduler"] == "slurm" else "")
        )


def check_results(study: Study) -> None:
    """Raise `StudyError` for a table, figure, finding or export that is unknown, or for which the study has nothing."""
    for name in study.tables:
        sources.select_table_sources(study, name)
    for name in study.figures:
        sources.select_figure_sources(study, name)
    sources.select_finding_sources(study)
    if study.exports:
        load_exports(study).check_exports(study)


def load_exports(study: Study) -> ModuleType:
    """Load the package `contrib.exports` by its name: all else works without contrib/.

    Raises `StudyError` where contrib/ was deleted.
    """
    exports = submodule("study", "contrib", "exports")
    if exports is None:
        raise StudyError(
            f"config/studies/{study.name}.yaml: exports: scripts/study/contrib, which has the exports, is not there; "
            "restore it, or remove the key"
        )
    return exports


def check_unchanged(paths: Iterable[str]) -> None:
    """Raise `StudyErrors` for tables, figures and other results that were changed after they were made."""
    changed = [path for path in paths if has_changed(path)]
    if changed:
        raise StudyErrors(
            f"{path}: was changed after it was made; delete it to have it made again (a copy may have any other name)"
            for path in changed
        )


def has_replaced_inputs(paths: Iterable[str], result: str) -> bool:
    """True if a sealed file has another content than when ``result`` was made of it, such as one of a backup.

    Raises:
        StudyErrors: for damaged files that were written after ``result`` began to be made of them; Snakemake would
            not read them again, as they may be older than ``result``.
    """
    changed, wrong = find_changed_since_read(paths, result), []
    for path in changed:
        try:
            read_json(path)
        except StudyError as error:
            wrong.append(str(error))
    if wrong:
        raise StudyErrors(wrong)
    return bool(changed and find_replaced_since_read(changed, result))


def check_references(study: Study) -> None:
    """Raise `StudyError` for a performance reference of a quantity or key that does not exist, or of no point."""
    for index, reference in enumerate(study.references):
        place = f"config/studies/{study.name}.yaml: references[{index}]"
        keys = schemas.list_separating_keys() if reference.of == "runs" else reference_check.LOAD_KEYS
        reference_check.require_known(reference.quantity, reference_check.QUANTITIES[reference.of], place)
        for key in reference.point:
            reference_check.require_known(key, keys, place)
        if not reference_check.select_points(reference, study):
            raise StudyError(f"{place}.point: no point of the study that gives timings has these values")


def check_files(study: Study) -> None:
    """Raise `StudyError` for a ``path`` dataset with a missing file."""
    for dataset in study.datasets.values():
        if dataset.definition["source"] == "image_files":
            _check_images(study, dataset)
        if dataset.definition["source"] != "path":
            continue
        for name in dataset.file_keys:
            where, file = f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}", dataset.definition[name]
            if set("{}") & set(file):
                raise StudyError(
                    f"{where}: {file}: Snakemake takes braces for its own; give the file another name or a link"
                )
            if not Path(file).is_file():
                raise StudyError(f"{where}: there is no file {file} (relative paths are taken from {Path.cwd()})")


def _check_images(study: Study, dataset: Dataset) -> None:
    """Raise `StudyError` for an ``image_files`` dataset whose files are missing or cannot be used."""
    for name in dataset.file_keys:
        where, file = f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}", dataset.definition[name]
        if set("{}") & set(file):
            raise StudyError(f"{where}: {file}: Snakemake takes braces for its own; give the files another name")
        images = inputs.list_image_files(dataset, "", name)
        if not images or not all(Path(path).exists() for path in images):
            raise StudyError(f"{where}: there is nothing at {file} (relative paths are taken from {Path.cwd()})")
        try:
            inputs.describe_image_source(dataset, "", name).check()
        except StudyError as error:
            raise StudyError(f"{where}: {error}") from None


def check_times(paths: Iterable[str | Path], now_s: float) -> None:
    """Raise `StudyErrors` for inputs whose time is in the future, by more than a second.

    Snakemake would refuse what is made of them, as older than its input. It looks at a link's own time, too.
    """
    wrong = []
    for path in map(Path, dict.fromkeys(map(str, paths))):
        if not path.exists():
            continue
        of_file_s, of_link_s = path.stat().st_mtime - now_s, path.lstat().st_mtime - now_s
        if max(of_file_s, of_link_s) > 1:
            touch = f"touch {'-h ' if of_link_s > of_file_s else ''}{shlex.quote(str(path))}"
            wrong.append(
                f"{path}: its time is {max(of_file_s, of_link_s):,.0f} s in the future, so nothing can be made of it; "
                f"check this machine's clock, then: {touch}"
            )
    if wrong:
        raise StudyErrors(wrong)


def check_storage(study: Study, machine: Machine) -> None:
    """Raise `StudyError` for runs whose storage is not in the machine's file, or that cannot use it."""
    for name in dict.fromkeys(run["storage"] for run in study.runs):
        try:
            storage.choose_data_dir(name, machine, "")
        except StudyError as error:
            raise StudyError(f"config/studies/{study.name}.yaml: {error}") from None
    for run in study.runs:
        if run["storage"] in storage.list_node_folders(machine) and (reason := _explain_shared_storage(run)):
            raise StudyError(
                f"config/studies/{study.name}.yaml: {run.dataset.benchmark}: storage: {run['storage']} is on each node "
                f"(storage_on_nodes in config/machines/{machine['name']}.yaml): {reason}"
            )


def _explain_shared_storage(run: PlannedRun) -> str | None:
    """Say why a run needs a storage that nodes share; None if it can copy its files to one on each node."""
    if run["staging"] != "none":
        return f"the run copies its files there by itself, without staging: {run['staging']}; use staging: none"
    if run["strategy"] == "parameter_server":
        return "chief and workers read the files that all nodes share; use a shared storage"
    if run["straggler_loads"]:
        return "a rank that loads more often needs files that are not copied first; use storage: none"
    if is_ensemble(run.parameters):
        return "every rank of an ensemble that preprocesses reads the files that all nodes share; use a shared storage"
    return None


def list_unverified_downloads(study: Study) -> list[str]:
    """List a line for each dataset with a download whose SHA-256 is not known."""
    lines = []
    for dataset in study.datasets.values():
        unknown = [name for name, checksums in dataset.origin.get("checksums", {}).items() if "sha256" not in checksums]
        if unknown:
            lines.append(
                f"dataset {dataset.key}: a download of {', '.join(unknown)} is not verified, since checksums has no "
                "sha256 of it; later downloads are compared with the first"
            )
    return lines


def check_downloads(study: Study, data_dir: str) -> None:
    """Raise `StudyError` for a downloaded file that is not the one which the study's ``checksums`` now describe.

    By its size, and the SHA-256 that was noted when it was downloaded: nothing is read again.
    """
    for dataset in study.datasets.values():
        for name, expected in dataset.origin.get("checksums", {}).items():
            file, noted = Path(dataset.locate_raw(data_dir, name)), Path(dataset.locate_checksum(data_dir, name))
            if not file.is_file():
                continue
            actual: dict[str, Any] = {"bytes": file.stat().st_size}
            if first := read_checksum_file(noted):
                actual["sha256"] = first
            for kind in actual:
                if kind in expected and actual[kind] != expected[kind]:
                    raise StudyError(
                        f"config/studies/{study.name}.yaml: datasets.{dataset.key}.checksums.{name}: {file} has {kind} "
                        f"{actual[kind]}, not {expected[kind]}: delete the file and {noted} to download it again, or "
                        "correct the value"
                    )


def _format_ranks(numbers: Iterable[int]) -> str:
    """Format rank counts as ``1, 2, 4 ranks``."""
    *others, last = map(str, numbers)
    return ", ".join([*others, format_count(last, "rank")])
