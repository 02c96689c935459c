"""Expand a study's grids into runs, without data, Snakemake or TensorFlow."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from study import workloads
from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment import ensemble, feasibility, programs, schemas, tuning
from study.experiment.datasets import build_dataset, find_dataset, get_identity
from study.experiment.parameter import FromBenchmark, FromGrid, Number
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.workload import AVAILABLE
from study.experiment.study import Dataset, Further, LoadingMeasurement, PlannedRun, Reference, Study
from study.machines import host_capabilities, machine

MOST_RUNS = 20_000
PLANNED = "STUDY_PLANNED"  # variable with the digest of the study that Snakemake has planned
PLANNED_ON = "STUDY_PLANNED_ON"  # variable with the machine's name
PLANNED_RUNS = "STUDY_PLANNED_RUNS"  # variable with the digest of the planned runs' fingerprints
MostRanks = Callable[[], int]  # what the machine carries; only asked where a grid has `AVAILABLE`
Members = dict[str, list[dict[str, Any]]]  # lists of ensemble members, by the names that grids use


def load_study(name: str, machine_file: dict[str, Any] | None = None) -> Study:
    """Read and expand ``config/studies/<name>.yaml``; raises `StudyError` for anything that cannot run.

    machine_file: by which ``gpus: available`` becomes numbers; without it, such a grid is refused.
    """
    configuration.check_name("studies", name)
    grids = _list_grids(validation.read_yaml_with_tree(configuration.list_files("studies")[name])[0])
    commands = programs.load_specs(grids)
    content = configuration.load_named("studies", name, schemas.add_own_parameters(commands))
    most_ranks = None if machine_file is None else lambda: host_capabilities.compute_capacity(machine_file).ranks
    return expand_study(name, content, f"config/studies/{name}.yaml", most_ranks)


def _list_grids(content: Any) -> list[Any]:
    """The grids of a study's YAML, which need not satisfy the schema."""
    grids = content.get("runs") if isinstance(content, dict) else None
    return grids if isinstance(grids, list) else []


def load_planned_study(name: str) -> Study:
    """Load the study in a step of a running Snakemake; raises `StudyError` if it was changed since it was planned.

    A table of other runs than the planned ones would lack some, or have others, and would not be made again.
    """
    machine_name = os.environ.get(PLANNED_ON)
    study = load_study(name, None if machine_name is None else machine.load(machine_name))
    if PLANNED in os.environ and os.environ[PLANNED] != digest_study(study):
        raise StudyError(f"config/studies/{name}.yaml: was changed since this command began; give it again")
    return study


def note_planned_study(study: Study, machine_file: dict[str, Any]) -> None:
    """Set the variables by which `load_planned_study` knows which study was planned, on which machine."""
    os.environ.update({PLANNED: digest_study(study), PLANNED_ON: machine_file["name"]})


def note_planned_runs(fingerprints: Iterable[str]) -> None:
    """Set the variable by which `has_planned_runs` knows the planned runs. fingerprints: in the study's order."""
    os.environ[PLANNED_RUNS] = _digest_fingerprints(fingerprints)


def has_planned_runs(fingerprints: Iterable[str]) -> bool:
    """Whether these are the fingerprints of the runs that Snakemake planned, whatever the configuration is now."""
    return os.environ.get(PLANNED_RUNS) == _digest_fingerprints(fingerprints)


def _digest_fingerprints(fingerprints: Iterable[str]) -> str:
    """Digest of the fingerprints in their order."""
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def digest_study(study: Study) -> str:
    """Digest of a study's runs, measurements and outputs; Snakemake puts it into `PLANNED`, for its steps."""
    outputs = [study.tables, study.figures, study.findings, study.exports]
    content = [study.name, [run.directory for run in study.runs], [each.directory for each in study.loading], outputs]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def expand_study(name: str, content: dict[str, Any], where: str, most_ranks: MostRanks | None = None) -> Study:
    """Expand a study that satisfies the schema. where: the file named in messages. most_ranks: of the machine."""
    datasets = {key: build_dataset(key, value, where) for key, value in content.get("datasets", {}).items()}
    commands = programs.load_specs(content["runs"])
    datasets |= {name: programs.build_dataset(name, spec) for name, spec in commands.items()}
    runs, parts = _expand_grids(content["runs"], datasets, content.get("members", {}), where, most_ranks)
    loading = _plan_loading(content.get("loading", []), datasets, where)
    datasets_in_use = [run.dataset for run in runs] + [measurement.dataset for measurement in loading]
    _refuse_two_targets(datasets_in_use, where)
    _refuse_unused(content, runs, datasets_in_use, where)
    if not datasets_in_use:
        raise StudyError(f"{where}: runs: there is nothing to run; give at least one grid or loading measurement")
    return Study(
        name,
        content["description"],
        {get_identity(each): each for each in datasets_in_use},
        runs,
        loading,
        tuple(content["tables"]),
        tuple(content.get("figures", ())),
        _build_references(content.get("references", []), where),
        _build_further_results(content.get("further_results", []), where),
        tuple(content.get("findings", ())),
        parts,
        content.get("screening_blocks"),
        tuple(content.get("exports", ())),
    )


def _list_doublings(most_ranks: MostRanks | None, place: str) -> list[int]:
    """The rank counts 1, 2, 4 and so on up to what the machine carries; raises `StudyError` if that is not known."""
    if most_ranks is None:
        raise StudyError(f"{place}.gpus: {AVAILABLE}: name the machine, whose ranks are meant")
    try:
        return [2**power for power in range(most_ranks().bit_length())]
    except StudyError as error:
        raise StudyError(f"{place}.gpus: {AVAILABLE}: {error}") from None


def _refuse_two_targets(datasets: list[Dataset], where: str) -> None:
    """Raise `StudyError` if equal datasets, which share their runs, have different target qualities."""
    first: dict[tuple[str, str], Dataset] = {}
    for dataset in datasets:
        other = first.setdefault(get_identity(dataset), dataset)
        if other.target != dataset.target:
            raise StudyError(
                f"{where}: datasets.{dataset.key}.target_quality: '{other.key}' is the same dataset with another "
                "target; give both the same"
            )


def _refuse_unused(content: dict[str, Any], runs: tuple[PlannedRun, ...], datasets: list[Dataset], where: str) -> None:
    """Raise `StudyError` for a dataset, list of members or ``screening_blocks`` that no grid uses."""
    keys = {each.key for each in datasets}
    for name in content.get("datasets", {}):
        if datasets and name not in keys:
            why = f"no grid or loading measurement uses it; give one dataset: {name}, or leave it out"
            raise StudyError(f"{where}: datasets.{name}: {why}")
    lists_in_use = {name for grid in content["runs"] for name in _as_list(grid.get("members", []))}
    for name in content.get("members", {}):
        if runs and name not in lists_in_use:
            raise StudyError(f"{where}: members.{name}: no grid uses it; give one members: {name}, or leave it out")
    if "screening_blocks" in content and not any(run.arms for run in runs):
        raise StudyError(f"{where}: screening_blocks: is for study tune, and no grid has tuning; leave it out")


def _build_further_results(entries: list[dict[str, str]], where: str) -> tuple[Further, ...]:
    """The further results; raises `StudyError` if a machine or study does not exist. The studies are not expanded."""
    for index, entry in enumerate(entries):
        for key, kind in (("machine", "machines"), ("study", "studies")):
            try:
                configuration.check_name(kind, entry[key])
            except StudyError as error:
                raise StudyError(f"{where}: further_results[{index}].{key}: {error}") from None
    return tuple(Further(entry["machine"], entry["study"]) for entry in entries)


def _expand_grids(
    grids: list[dict[str, Any]],
    datasets: dict[str, Dataset],
    members: Members,
    where: str,
    most_ranks: MostRanks | None,
) -> tuple[tuple[PlannedRun, ...], dict[str, tuple[PlannedRun, ...]]]:
    """(all runs of all grids, {part: its runs}); equal points of two grids are one run."""
    runs: dict[tuple, PlannedRun] = {}
    parts: dict[str, dict[tuple, PlannedRun]] = {}
    for index, grid in enumerate(grids):
        grid_runs = list(_expand_grid(grid, datasets, members, place := f"{where}: runs[{index}]", most_ranks))
        feasibility.refuse_idle_keys(grid_runs, (name for name in grid if name in PARAMETERS), place)
        for name, changes in grid.get("tuning", {}).items():
            arm_runs = [run for run in grid_runs if run.arms and run.arms[0].name == name]
            feasibility.refuse_idle_keys(arm_runs, changes, f"{place}.tuning.{name}")
        for run in grid_runs:
            runs[run.key] = _merge_runs(runs[run.key], run) if run.key in runs else run
            if "part" in grid:
                parts.setdefault(grid["part"], {})[run.key] = run
    return tuple(runs.values()), {name: tuple(grid_runs.values()) for name, grid_runs in parts.items()}


def _merge_runs(run: PlannedRun, other: PlannedRun) -> PlannedRun:
    """One run for equal runs of two grids, with its arms in both and the longer walltime."""
    arms = run.arms + tuple(arm for arm in other.arms if arm not in run.arms)
    longest = max(run.walltime_minutes or 0, other.walltime_minutes or 0) or None
    return dataclasses.replace(run, may_fail=other.may_fail or run.may_fail, arms=arms, walltime_minutes=longest)


def _expand_grid(
    grid: dict[str, Any],
    datasets: dict[str, Dataset],
    members: Members,
    place: str,
    most_ranks: MostRanks | None,
) -> Iterator[PlannedRun]:
    """Yield the runs of a grid: each point, its arms, and their repeats."""
    names = (*PARAMETERS, *programs.list_own_names(grid))
    axes = {name: _list_values(name, grid[name]) for name in names if name in grid}
    is_available = grid.get("gpus") == AVAILABLE
    if is_available:
        axes["gpus"] = _list_doublings(most_ranks, place)
    repeats = range(1, grid.get("repeats", 1) + 1)
    arms = tuning.get_arms(grid, place)
    number = math.prod(map(len, axes.values())) * len(repeats) * (1 + len(arms))
    if number > MOST_RUNS:
        raise StudyError(f"{place}: the grid has {number} runs, {MOST_RUNS} are the most that a grid may have")
    for point in itertools.product(*axes.values()):
        point_values = {**dict(zip(axes, point, strict=True)), "repeat": 1}
        dataset = find_dataset(point_values, datasets, place)
        plan_arm = functools.partial(_plan_run, point_values, dataset, grid, members)
        try:
            first = list(tuning.plan_arms(plan_arm, arms, place))
        except feasibility.UnsharedEpochs:
            if not is_available or point_values["gpus"] == 1:
                raise
            continue
        for repeat in repeats:
            yield from (run.with_repeat(repeat) for run in first)


def _plan_run(
    point_values: dict[str, Any],
    dataset: Dataset,
    grid: dict[str, Any],
    members: Members,
    changes: Mapping[str, Any],
    place: str,
) -> PlannedRun:
    """Plan one run of a point, and check that it can run. changes: what an arm sets instead of the grid."""
    set_by_arm = {name: _list_values(name, value)[0] for name, value in changes.items()}
    values = programs.fold_parameters({**point_values, **set_by_arm}, dataset.spec, place) | {"dataset": dataset.id}
    values |= _resolve_members(values, members, place)
    run = PlannedRun(
        _complete_parameters(values, dataset, place),
        dataset,
        grid.get("may_fail"),
        walltime_minutes=grid.get("walltime_minutes"),
    )
    feasibility.check_run(run, place)
    return run


def _complete_parameters(given_values: dict[str, Any], dataset: Dataset, place: str) -> dict[str, Any]:
    """All parameters of a run in the declared order; missing ones get their default."""
    values = {}
    given_values = {**programs.get_defaults(dataset.spec), **given_values}
    for name, parameter in PARAMETERS.items():
        if name in given_values:
            values[name] = given_values[name]
            continue
        default = parameter.default
        if isinstance(default, FromBenchmark):
            default = default.find(dataset.spec, given_values["scaling"])
            if default is None:
                raise StudyError(
                    f"{place}: the key '{name}' is missing; "
                    f"{dataset.benchmark} has no default under {given_values['scaling']} scaling"
                )
        if isinstance(default, FromGrid):
            default = default.find(given_values)
            if default is None:
                raise StudyError(f"{place}: the key '{name}' is missing")
        values[name] = default
    return values


def _resolve_members(point_values: dict[str, Any], members: Members, place: str) -> dict[str, str]:
    """{"members": the list as text} for a grid that names one in ``members``; {} if it names none."""
    name = point_values.get("members", ensemble.UNNAMED)
    if name == ensemble.UNNAMED:
        return {}
    if name not in members:
        known_lists = f"; known lists: {', '.join(members)}" if members else "; it declares none under members"
        raise StudyError(
            f"{place}.members: there is no list '{name}'{validation.suggest_nearest(name, members)}{known_lists}"
        )
    return {"members": ensemble.as_text(members[name])}


def _plan_loading(
    entries: list[dict[str, Any]], datasets: dict[str, Dataset], where: str
) -> tuple[LoadingMeasurement, ...]:
    """The loading measurements of a study; raises `StudyError` for a second entry of one dataset."""
    loading: list[LoadingMeasurement] = []
    for index, entry in enumerate(entries):
        dataset = find_dataset(entry, datasets, f"{where}: loading[{index}]")
        if get_identity(dataset) in [get_identity(earlier.dataset) for earlier in loading]:
            raise StudyError(f"{where}: loading[{index}].dataset: '{dataset.key}' is measured by another entry already")
        _check_loaders(dataset, _as_list(entry["loader"]), f"{where}: loading[{index}].loader")
        loaders, caches = _as_list(entry["loader"]), _as_list(entry.get("page_cache", "warm"))
        loading.append(LoadingMeasurement(dataset, tuple(loaders), tuple(caches), entry["repeats"]))
    return tuple(loading)


def _check_loaders(dataset: Dataset, loaders: list[str], place: str) -> None:
    """Raise `StudyError` for images, which are read while a model trains, and for a loader of narrower tables only."""
    kind = workloads.load_workload(dataset.benchmark, dataset.spec).kind
    for loader in loaders:
        if kind == "images":
            raise StudyError(f"{place}: {loader}: {dataset.benchmark}'s samples are {kind}; compare formats in runs")
        too_wide = dataset.explain_too_wide(loader)
        if too_wide:
            raise StudyError(f"{place}: {loader}: {too_wide}")


def _list_values(name: str, values: Any) -> list:
    """The values of a grid key as a list; 1 becomes 1.0 for keys with decimals, so that both name one run."""
    kind = PARAMETERS[name].kind if name in PARAMETERS else None
    return [float(value) if isinstance(kind, Number) else value for value in _as_list(values)]


def _build_references(entries: list[dict[str, Any]], where: str) -> tuple[Reference, ...]:
    """The performance references of a study; raises `StudyError` for one without a limit."""
    references = []
    for index, entry in enumerate(entries):
        place, table = f"{where}: references[{index}]", entry.get("of", "runs")
        low, high = entry.get("low"), entry.get("high")
        if low is None and high is None:
            raise StudyError(f"{place}: give low, high or both: without a limit nothing is compared")
        references.append(Reference(entry["quantity"], table, entry.get("point", {}), low, high))
    return tuple(references)


def _as_list(value: Any) -> list:
    """``value``, in a list if it is none."""
    return value if isinstance(value, list) else [value]
