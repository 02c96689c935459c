"""The plan of a study on a machine, shown before anything starts."""

import collections
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from study.compare import arms, noise_of_runs, reference_check, references, tuner
from study.compare.noise_of_runs import Noise
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS
from study.core import checked, cores
from study.core.errors import StudyError, StudyErrors
from study.core.files import (
    changed_since_read,
    noted_checksum,
    read_json,
    replaced_since_read,
    was_changed,
)
from study.core.registry import submodule
from study.core.statistics import planned_difference
from study.core.wording import counted
from study.experiment import inputs, programs, published_times, schemas
from study.experiment.ensemble import is_ensemble
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.workload import AVAILABLE
from study.experiment.study import Dataset, PlannedRun, Study
from study.experiment.walltimes import MACHINE, Limits
from study.machines import host_capabilities, launchers, queues, storage
from study.machines.machine import find_submit_program
from study.machines.queues import Timed
from study.records import attempts
from study.report import sources
from study.report.findings import declaration
from study.workloads import command

NO_FOLDER = "/nonexistent"  # of results: none is finished
IN_TURN = "if they run one after the other (--jobs 1) and "  # where jobs of several blocks may run at once
OF_LATER_EPOCHS = {"time_per_epoch_steady_s", "first_epoch_excess_s", arms.SPEED}  # columns that need two epochs
Machine = dict[str, Any]  # a machine's file with its name, see `study.machines.machine`


def summary(
    study: Study,
    machine: Machine,
    components: dict[str, int],
    limits: Limits | None = None,
    expected: Iterable[str] = (),
    chooser: str = "",
    noise: Noise = noise_of_runs.ASSUMED,
) -> str:
    """A few lines: runs by benchmark and scaling, the largest run, and what the machine would refuse.

    components: of Snakemake's groups, which pack small runs into one batch job; see `study.machines.queues`. limits:
    of the runs; None for those without finished repeats. expected: lines of `study.prediction.forecast`. chooser: who
    chose the study, such as "--config chose it". noise: for the power of its comparisons.
    """
    limits = limits or Limits(study.runs, NO_FOLDER, machine)
    lines = [f"Study {study.name} on machine {machine['name']}: {counted(len(study.runs), 'run')}. {study.description}"]
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
            f"  {benchmark} {scaling} scaling: {counted(len(planned), 'run')} on {_ranks_named(ranks)}"
            f"{loaded}{_staged(planned)}{_expected_failures(planned)}"
        )
    lines += _parts(study)
    for entry in study.loading:
        lines.append(
            f"  {entry.dataset.benchmark} loading: {entry.repeats} x {', '.join(entry.loaders)}, "
            f"dataset {entry.dataset.id}"
        )
    if study.runs and (most := attempts.further(machine)):
        lines.append(f"  {attempts.announced(most)}")
    lines += _batch_jobs(study, machine, components, limits)
    lines += _too_long(study, machine, limits)
    lines += _crowded(study, machine)
    lines += _without_verdict(study)
    lines += [f"  Warning: {line}" for line in programs.undivided(study.runs)]
    in_turn = "" if "scheduler" not in machine else IN_TURN
    lines += [f"  {line}" for line in [*tuner.power(study, noise), *_power_of_findings(study, noise, in_turn)]]
    lines += expected
    refusals = refused(study, machine, components, limits)
    if refusals:
        lines.append("  This can be planned but not started here:")
        lines += [f"    {line}" for line in refusals]
    return "\n".join(lines)


def _parts(study: Study) -> list[str]:
    """The runs of each part of the study, such as a paper's figures."""
    lines, seen = [], set[tuple[Any, ...]]()
    for part, runs in study.parts.items():
        keys = {run.key for run in runs}
        again = len(keys & seen)
        told = f" ({again} of them in an earlier part)" if again else ""
        lines.append(f"  {part}: {counted(len(keys), 'run')}{told}{_expected_failures(list(runs))}")
        seen |= keys
    return lines


def timed(study: Study, limits: Limits) -> list[Timed]:
    """Each timed job, as far as its batch job is concerned: each run, and each loading measurement."""
    return [*map(limits.of, study.runs), *(limits.of_a_load() for _ in study.loading)]


def _batch_jobs(study: Study, machine: Machine, components: dict[str, int], limits: Limits) -> list[str]:
    """The batch jobs that the study needs; empty for a machine without a batch system."""
    if "scheduler" not in machine:
        return []
    modes: dict[str, list[Timed]] = {}
    for run in study.runs:
        modes.setdefault(run["scaling"], []).append(limits.of(run))
    if study.loading:
        modes["loading"] = [limits.of_a_load()] * len(study.loading)
    hours = {mode: _own_node_hours(each, machine) for mode, each in modes.items()}
    every = timed(study, limits)
    jobs = queues.list_jobs(every, machine, components)
    total = queues.sum_node_hours(jobs)
    told = ", ".join(f"{mode} {each:,.0f}" for mode, each in hours.items())
    idle = total - sum(hours.values())
    lines = [
        f"  {machine['scheduler']}: {counted(len(jobs), 'job')} of {_minutes(jobs)}; "
        f"if every run took its whole time limit, {total:,.0f} node-hours ({told}"
        + (f", idle nodes {idle:,.0f})" if idle > 0.5 else ")")
    ]
    lines += _known(study, machine, limits)
    small = [each for each in every if queues.count_runs_per_job(each, machine, components) > 1]
    if small:
        packed, alone = queues.list_jobs(small, machine, components), queues.list_jobs(small, machine, {})
        lines.append(
            f"  packed: {len(small)} of them share {counted(len(packed), 'job')}, {queues.sum_node_hours(packed):,.0f} "
            f"node-hours; each alone in the smallest job that the queue takes: {len(alone)} jobs, "
            f"{queues.sum_node_hours(alone):,.0f} node-hours; change it with {queues.format_components(components)}"
        )
    return lines


def _own_node_hours(each: Iterable[Timed], machine: Machine) -> float:
    """Of the runs' own nodes, without those that are idle in a packed job."""
    return queues.sum_node_hours((launchers.count_nodes(one.ranks, machine), one.minutes) for one in each)


def _minutes(jobs: Iterable[tuple[int, int]]) -> str:
    minutes = sorted({each for _, each in jobs})
    return f"{minutes[0]} minutes" if len(minutes) == 1 else f"{minutes[0]} to {minutes[-1]} minutes"


def _known(study: Study, machine: Machine, limits: Limits) -> list[str]:
    """Where the runs' time limits come from, and what the runs with published times would take by these."""
    found = [limits.of(run) for run in study.runs]
    sources = collections.Counter(each.source for each in found)
    if list(sources) in ([], [MACHINE]):
        return []
    told = ", ".join(f"{source} for {counted(number, 'run')}" for source, number in sources.most_common())
    lines = [f"  walltimes by {told}"]
    published = [(run, seconds) for run in study.runs if (seconds := published_times.runtime_s(run, machine))]
    if published:
        hours = (
            sum(launchers.count_nodes(run.processes_on(machine), machine) * seconds for run, seconds in published)
            / 3600
        )
        lines.append(
            f"  by the paper's times, {counted(len(published), 'run')} "
            f"({', '.join(dict.fromkeys(run['benchmark'] for run, _ in published))}) would use {hours:,.0f} node-hours"
        )
    return lines


def _too_long(study: Study, machine: Machine, limits: Limits) -> list[str]:
    """Warnings of runs that train longer than the machine lets them, by the papers' times per epoch on it."""
    never: list[tuple[PlannedRun, float]] = []
    limited: list[tuple[PlannedRun, float]] = []
    for run in study.runs:
        seconds = published_times.training_s(run, machine)
        if seconds is None or seconds <= limits.of(run).limit_s:
            continue
        may = _longest_s(run, machine)
        (never if seconds > may else limited).append((run, seconds))
    lines = []
    if never:
        most = max(_longest_s(run, machine) for run, _ in never)
        lines.append(
            f"{_by_published_times(never)}; the queue lets a run of these sizes take {most / 3600:.1f} h at most "
            "(queue.longest_minutes): leave these points out, or give fewer epochs, or they end as timeout"
        )
    if limited:
        longest = max(seconds for _, seconds in limited)
        lines.append(
            f"{_by_published_times(limited)}; time_limit_s is {machine['time_limit_s']}: raise it in "
            f"config/machines/{machine['name']}.yaml above {longest:,.0f} s and add the loading, or they end as timeout"
        )
    return [f"  Warning: {line}" for line in lines]


def _longest_s(run: PlannedRun, machine: Machine) -> float:
    """The longest time limit (s) of a run in a job of its own size."""
    nodes = max(launchers.count_nodes(run.processes_on(machine), machine), queues.get_smallest_nodes(machine))
    return queues.find_longest_s(nodes, machine)


def _crowded(study: Study, machine: Machine) -> list[str]:
    """A warning of runs whose processes on this host have fewer cores than they should; records call it oversubscribed.

    Elsewhere a batch system gives each rank its cores, or the hosts are asked when the run starts.
    """
    if not host_capabilities.starts_ranks_here(machine):
        return []
    usable = cores.usable()
    needed = [(run.gpus, number) for run in study.runs
              if (number := host_capabilities.count_cores_needed(run.parameters, machine)) > usable]  # fmt: skip
    if not needed:
        return []
    ranks = _ranks_named(sorted({gpus for gpus, _ in needed}))
    return [
        f"  Warning: {counted(len(needed), 'run')} on {ranks} share cores: with cores_per_rank: "
        f"{machine['cores_per_rank']} they need up to {max(number for _, number in needed)}, and this machine has "
        f"{usable:g}; such runs are marked oversubscribed and enter no finding: leave these numbers out of gpus, or "
        f"write gpus: {AVAILABLE}"
    ]


def _without_verdict(study: Study) -> list[str]:
    """Warnings of arms that cannot have a verdict, or of which `make tune` can pick none."""
    compared = [(run, arm) for run in study.runs for arm in run.arms if arm.switches]
    few = [arm for arm, blocks in collections.Counter((arm.baseline, arm.name) for _, arm in compared).items()
           if blocks < LEAST_BLOCKS]  # fmt: skip
    short = {(arm.baseline, arm.name) for run, arm in compared if run.epochs_per_rank < 2}
    lines = []
    if few:
        lines.append(
            f"{counted(len(few), 'arm')} of tuning with fewer than {LEAST_BLOCKS} repeats: the table gives no verdict "
            "for fewer; set repeats in the grid"
        )
    if short:
        lines.append(
            f"{counted(len(short), 'arm')} of tuning with one epoch a rank: throughput is that of the epochs after the "
            "first; set epochs to 2 or more"
        )
    if study.screening_blocks and (why := tuner.unanswerable(study)):
        lines.append(why)
    return [f"  Warning: {line}" for line in lines]


def _power_of_findings(study: Study, noise: Noise, in_turn: str) -> list[str]:
    """Which difference the findings of the study see with 80 % probability. in_turn: a further condition."""
    blocks = min((run.repeat for run in _last_repeats(study)), default=0)
    if not study.findings or blocks < LEAST_BLOCKS:
        return []
    least = planned_difference(noise.deviation, blocks, 0.05)
    return [
        f"findings: with {blocks} blocks, {in_turn}if runs of a block differ by {noise.words}, a difference of "
        f"{100 * (least - 1):.2g} % is found with probability 0.8; repeats added later change no verdict"
    ]


def without_value(study: Study) -> list[str]:
    """Findings whose quantity some of their runs cannot have, since it needs a second epoch."""
    lines = []
    for finding in map(declaration.load, study.findings):
        compared = [run for runs in declaration.arms(finding, study).values() for run in runs]
        short = sum(run.epochs_per_rank < 2 for run in compared)
        quantities = [finding.quantity, *([finding.along] if finding.along else [])]
        columns = OF_LATER_EPOCHS.intersection(name for each in quantities for name in each.columns)
        if short and columns:
            lines.append(
                f"finding {finding.name}: {short} of {counted(len(compared), 'run')} can have no {min(columns)}, which "
                "is that of the epochs after the first: set epochs so that each rank trains two or more, or compare "
                "another quantity"
            )
    return lines


def _last_repeats(study: Study) -> list[PlannedRun]:
    """The last repeat of each point that a finding may compare."""
    last = {run.point: run for run in sorted(study.runs, key=lambda run: run.repeat)}
    return [run for run in last.values() if run.repeat >= LEAST_BLOCKS]


def _by_published_times(runs: list[tuple[PlannedRun, float]]) -> str:
    """How many runs, which points, and how long the longest trains."""
    ranks: dict[str, set[int]] = {}
    for run, _ in runs:
        ranks.setdefault(f"{run['benchmark']} {run['scaling']} scaling", set()).add(run.gpus)
    points = "; ".join(f"{kind} on {_ranks_named(sorted(counts))}" for kind, counts in ranks.items())
    return (
        f"{len(runs)} runs ({points}) are too long: by the published times per epoch, training alone takes up to "
        f"{max(seconds for _, seconds in runs) / 3600:.1f} h"
    )


def _staged(runs: list[PlannedRun]) -> str:
    ways = dict.fromkeys(run["staging"] for run in runs)
    return "" if list(ways) == ["none"] else f", staging {', '.join(ways)}"


def _expected_failures(runs: list[PlannedRun]) -> str:
    number = sum(run.may_fail is not None for run in runs)
    return f"; {number} may fail" if number else ""


def refused(study: Study, machine: Machine, components: dict[str, int], limits: Limits | None = None) -> list[str]:
    """Reasons why some of the study's points cannot run on the machine, or cannot be started here, one per line."""
    every = timed(study, limits or Limits(study.runs, NO_FOLDER, machine))
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
    outside = host_capabilities.refuse_outside_laboratory(machine)
    if outside:
        lines.append(f"{where}: {outside}")
    for rate in sorted({run["link_mbit_per_s"] for run in study.runs}):
        if unlimited := host_capabilities.refuse_rate(rate, machine):
            lines.append(f"config/studies/{study.name}.yaml: {unlimited}")
    if untold := attempts.refusal(machine):
        lines.append(f"{where}: {untold}")
    lines += [f"config/studies/{study.name}.yaml: {line}" for line in _refused_values(study, machine)]
    lines += [f"{where}: {line}" for line in _too_few_gpus(study, machine)]
    return lines + _refused_sizes(every, machine, components)


def _too_few_gpus(study: Study, machine: Machine) -> list[str]:
    """Why ranks would share GPUs of this host, of which each is to have its own; nothing where none can be counted."""
    carried = host_capabilities.find_capacity(machine)
    if carried is None or carried.shared != host_capabilities.GPUS:
        return []
    too_many = {run.gpus for run in study.runs if run.gpus > carried.ranks}
    ranks = sorted(each for each in too_many if launchers.refuse_ranks(each, machine) is None)
    if not ranks:
        return []
    return [
        f"gpus_per_rank: {machine['gpus_per_rank']}: CUDA shows fewer GPUs here than {_ranks_named(ranks)} need; leave "
        f"these numbers out of gpus, or write gpus: {AVAILABLE}"
    ]


def _refused_sizes(every: list[Timed], machine: Machine, components: dict[str, int]) -> list[str]:
    """Rank counts that the machine does not have, and jobs that its queue does not take."""
    where, lines = f"config/machines/{machine['name']}.yaml", list[str]()
    for each in sorted(set(every), key=lambda each: (each.ranks, each.limit_s)):
        too_many = launchers.refuse_ranks(each.ranks, machine)
        if too_many:
            keys = "hosts" if machine.get("hosts") else "ranks_per_node, nodes"
            lines.append(f"{where}: {keys}: {too_many}")
        elif broken := queues.refuse_run(each, machine, components):
            lines.append(f"{where}: {broken}")
    better = queues.advise_components(every, machine, components)
    if better != components:
        shown = queues.format_components(better)
        lines.append(f"runs that are too small for a batch job can share one: give {shown}, or leave this option out")
    return list(dict.fromkeys(lines))


def _refused_values(study: Study, machine: Machine) -> list[str]:
    """Values of grid keys that the machine cannot have, one line per key and reason."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for run in study.runs:
        on = launchers.with_library(run["allreduce_library"], machine)
        for name, parameter in PARAMETERS.items():
            if parameter.refuse_on and (reason := parameter.refuse_on(run, on)):
                found[name, reason] += 1
    return [f"{name} ({counted(number, 'run')}): {reason}" for (name, reason), number in found.items()]


def check_account(machine: Machine, variables: Mapping[str, str]) -> None:
    """Raise `StudyError` if the machine's jobs need an account and none is set, or if it cannot be one's name."""
    if "scheduler" not in machine:
        return
    account = variables.get("STUDY_ACCOUNT")
    if account and not re.fullmatch(checked.named_schema("config")["properties"]["account"]["pattern"], account):
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
        sources.of_table(study, name)
    for name in study.figures:
        sources.of_figure(study, name)
    sources.of_findings(study)
    if study.exports:
        load_exports(study).check(study)


def load_exports(study: Study) -> ModuleType:
    """The package `contrib.exports`, loaded by its name: all else works without contrib/.

    Raises `StudyError` where contrib/ was deleted.
    """
    exports = submodule("study", "contrib", "exports")
    if exports is None:
        raise StudyError(
            f"config/studies/{study.name}.yaml: exports: scripts/study/contrib, which has the exports, is not there; "
            "restore it, or remove the key"
        )
    return exports


def check_made(paths: Iterable[str]) -> None:
    """Raise `StudyErrors` for tables, figures and other results that were changed after they were made."""
    changed = [path for path in paths if was_changed(path)]
    if changed:
        raise StudyErrors(
            f"{path}: was changed after it was made; delete it to have it made again (a copy may have any other name)"
            for path in changed
        )


def check_read(paths: Iterable[str], made: str) -> bool:
    """Whether a sealed file has another content than when ``made`` was made of it, such as one of a backup.

    Raises:
        StudyErrors: for those that are damaged and were written after ``made`` began to be made of them; Snakemake
            would not read them again, as they may be older than ``made``.
    """
    changed, wrong = changed_since_read(paths, made), []
    for path in changed:
        try:
            read_json(path)
        except StudyError as error:
            wrong.append(str(error))
    if wrong:
        raise StudyErrors(wrong)
    return bool(changed and replaced_since_read(changed, made))


def check_references(study: Study) -> None:
    """Raise `StudyError` for a performance reference of a quantity or key that does not exist, or of no point.

    Also for one relative to a calibration of what is neither a time nor a rate.
    """
    for index, reference in enumerate(study.references):
        place = f"config/studies/{study.name}.yaml: references[{index}]"
        keys = schemas.separating() if reference.of == "runs" else reference_check.LOAD_KEYS
        reference_check.require_known(reference.quantity, reference_check.QUANTITIES[reference.of], place)
        if reference.calibrated and references.calibrated_unit(reference.quantity) is None:
            raise StudyError(
                f"{place}.relative_to: {reference.quantity} is neither a time nor a rate, so the time of a calibration "
                "says nothing about it; leave relative_to out"
            )
        for key in reference.point:
            reference_check.require_known(key, keys, place)
        if not reference_check.selected(reference, study):
            raise StudyError(f"{place}.point: no point of the study that gives timings has these values")


def check_files(study: Study) -> None:
    """Raise `StudyError` for a ``path`` dataset with a missing file."""
    for dataset in study.datasets.values():
        if dataset.definition["source"] == "image_files":
            _check_images(study, dataset)
        if dataset.definition["source"] != "path":
            continue
        for name in dataset.files:
            where, file = f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}", dataset.definition[name]
            if set("{}") & set(file):
                raise StudyError(
                    f"{where}: {file}: Snakemake takes braces for its own; give the file another name or a link"
                )
            if not Path(file).is_file():
                raise StudyError(f"{where}: there is no file {file} (relative paths are taken from {Path.cwd()})")


def _check_images(study: Study, dataset: Dataset) -> None:
    for name in dataset.files:
        where, file = f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}", dataset.definition[name]
        if set("{}") & set(file):
            raise StudyError(f"{where}: {file}: Snakemake takes braces for its own; give the files another name")
        found = inputs.image_files(dataset, "", name)
        if not found or not all(Path(path).exists() for path in found):
            raise StudyError(f"{where}: there is nothing at {file} (relative paths are taken from {Path.cwd()})")
        try:
            inputs.image_source(dataset, "", name).check()
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
    """Raise `StudyError` for runs from a storage that the machine's file does not have, or that cannot use it."""
    for name in dict.fromkeys(run["storage"] for run in study.runs):
        try:
            storage.choose_data_dir(name, machine, "")
        except StudyError as error:
            raise StudyError(f"config/studies/{study.name}.yaml: {error}") from None
    for run in study.runs:
        if run["storage"] in storage.list_node_folders(machine) and (why := _not_on_nodes(run)):
            raise StudyError(
                f"config/studies/{study.name}.yaml: {run.dataset.benchmark}: storage: {run['storage']} is on each node "
                f"(storage_on_nodes in config/machines/{machine['name']}.yaml): {why}"
            )


def _not_on_nodes(run: PlannedRun) -> str | None:
    """Why a run cannot copy its files to a storage on each node, or None."""
    if run["staging"] != "none":
        return f"the run copies its files there by itself, without staging: {run['staging']}; use staging: none"
    if run["strategy"] == "parameter_server":
        return "chief and workers read the files that all nodes share; use a shared storage"
    if run["straggler_loads"]:
        return "a rank that loads more often needs files that are not copied first; use storage: none"
    if is_ensemble(run.parameters):
        return "every rank of an ensemble that preprocesses reads the files that all nodes share; use a shared storage"
    return None


def unverified_downloads(study: Study) -> list[str]:
    """A line for each dataset with a file that is downloaded while its SHA-256 is not known."""
    lines = []
    for dataset in study.datasets.values():
        unknown = [name for name, known in dataset.origin.get("checksums", {}).items() if "sha256" not in known]
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
            file, noted = Path(dataset.raw(data_dir, name)), Path(dataset.checksum(data_dir, name))
            if not file.is_file():
                continue
            found: dict[str, Any] = {"bytes": file.stat().st_size}
            if first := noted_checksum(noted):
                found["sha256"] = first
            for kind in found:
                if kind in expected and found[kind] != expected[kind]:
                    raise StudyError(
                        f"config/studies/{study.name}.yaml: datasets.{dataset.key}.checksums.{name}: {file} has {kind} "
                        f"{found[kind]}, not {expected[kind]}: delete the file and {noted} to download it again, or "
                        "correct the value"
                    )


def _ranks_named(numbers: Iterable[int]) -> str:
    *others, last = map(str, numbers)
    return ", ".join([*others, counted(last, "rank")])
