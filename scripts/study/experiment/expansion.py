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
from study.core import checked, configuration
from study.core.errors import StudyError
from study.data.images.formats import FORMATS
from study.data.loaders import LOADERS
from study.experiment import ensemble, feasibility, programs, schemas, tuning
from study.experiment.datasets import dataset, dataset_of, identity
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


def load_study(name: str, on: dict[str, Any] | None = None) -> Study:
    """Read and expand ``config/studies/<name>.yaml``; raises `StudyError` for anything that cannot run.

    on: the machine's file, by which ``gpus: available`` becomes numbers; without it, such a grid is refused.
    """
    configuration.check_name("studies", name)
    grids = _grids(checked.read(configuration.files("studies")[name])[0])
    own = programs.specs(grids)
    content = configuration.load_named("studies", name, schemas.with_own_parameters(own))
    most_ranks = None if on is None else lambda: host_capabilities.compute_capacity(on).ranks
    return expand(name, content, f"config/studies/{name}.yaml", most_ranks)


def _grids(content: Any) -> list[Any]:
    """The grids of a study that need not satisfy the schema."""
    grids = content.get("runs") if isinstance(content, dict) else None
    return grids if isinstance(grids, list) else []


def load_planned(name: str) -> Study:
    """As `load_study`, for a step of a Snakemake that runs: raises `StudyError` if the study was changed meanwhile.

    A table of other runs than the planned ones would lack some, or have others, and would not be made again.
    """
    on = os.environ.get(PLANNED_ON)
    study = load_study(name, None if on is None else machine.load(on))
    if PLANNED in os.environ and os.environ[PLANNED] != digest(study):
        raise StudyError(f"config/studies/{name}.yaml: was changed since this command began; give it again")
    return study


def note_planned(study: Study, on: dict[str, Any]) -> None:
    """Tell the steps which study was planned, on which machine, for `load_planned`."""
    os.environ.update({PLANNED: digest(study), PLANNED_ON: on["name"]})


def note_planned_runs(fingerprints: Iterable[str]) -> None:
    """Tell the steps how the study's runs were planned, for `are_planned_runs`. fingerprints: in the study's order."""
    os.environ[PLANNED_RUNS] = _digest_fingerprints(fingerprints)


def are_planned_runs(fingerprints: Iterable[str]) -> bool:
    """Whether all runs of a study are those that Snakemake planned, whatever the configuration is now."""
    return os.environ.get(PLANNED_RUNS) == _digest_fingerprints(fingerprints)


def _digest_fingerprints(fingerprints: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def digest(study: Study) -> str:
    """Identifies what a study runs and makes; Snakemake puts it into the variable `PLANNED`, for its steps."""
    made = [study.tables, study.figures, study.findings, study.exports]
    of_study = [study.name, [run.directory for run in study.runs], [each.directory for each in study.loading], made]
    return hashlib.sha256(json.dumps(of_study).encode()).hexdigest()


def expand(name: str, content: dict[str, Any], where: str, most_ranks: MostRanks | None = None) -> Study:
    """Expand a study that satisfies the schema. where: the file named in messages. most_ranks: of the machine."""
    datasets = {key: dataset(key, value, where) for key, value in content.get("datasets", {}).items()}
    datasets |= {name: programs.dataset(name, spec) for name, spec in programs.specs(content["runs"]).items()}
    runs, parts = _runs(content["runs"], datasets, content.get("members", {}), where, most_ranks)
    loading = _loading(content.get("loading", []), datasets, where)
    used = [run.dataset for run in runs] + [measurement.dataset for measurement in loading]
    _refuse_two_targets(used, where)
    _refuse_unused(content, runs, used, where)
    if not used:
        raise StudyError(f"{where}: runs: there is nothing to run; give at least one grid or loading measurement")
    return Study(
        name,
        content["description"],
        {identity(each): each for each in used},
        runs,
        loading,
        tuple(content["tables"]),
        tuple(content.get("figures", ())),
        _references(content.get("references", []), where),
        _further(content.get("further_results", []), where),
        tuple(content.get("findings", ())),
        parts,
        content.get("screening_blocks"),
        tuple(content.get("exports", ())),
    )


def _doublings(most_ranks: MostRanks | None, place: str) -> list[int]:
    """1, 2, 4 and so on, up to what the machine carries; raises `StudyError` where that is not known."""
    if most_ranks is None:
        raise StudyError(f"{place}.gpus: {AVAILABLE}: name the machine, whose ranks are meant")
    try:
        return [2**power for power in range(most_ranks().bit_length())]
    except StudyError as error:
        raise StudyError(f"{place}.gpus: {AVAILABLE}: {error}") from None


def _refuse_two_targets(used: list[Dataset], where: str) -> None:
    """Equal datasets under two names share their runs, and so have one target quality."""
    first: dict[tuple[str, str], Dataset] = {}
    for each in used:
        other = first.setdefault(identity(each), each)
        if other.target != each.target:
            raise StudyError(
                f"{where}: datasets.{each.key}.target_quality: '{other.key}' is the same dataset with another target; "
                "give both the same"
            )


def _refuse_unused(content: dict[str, Any], runs: tuple[PlannedRun, ...], used: list[Dataset], where: str) -> None:
    """Raise `StudyError` for a dataset or a list of members that nothing uses: a grid may mean it and use another."""
    keys = {each.key for each in used}
    for name in content.get("datasets", {}):
        if used and name not in keys:
            why = f"no grid or loading measurement uses it; give one dataset: {name}, or leave it out"
            raise StudyError(f"{where}: datasets.{name}: {why}")
    named = {name for grid in content["runs"] for name in _several(grid.get("members", []))}
    for name in content.get("members", {}):
        if runs and name not in named:
            raise StudyError(f"{where}: members.{name}: no grid uses it; give one members: {name}, or leave it out")
    if "screening_blocks" in content and not any(run.arms for run in runs):
        raise StudyError(f"{where}: screening_blocks: is for study tune, and no grid has tuning; leave it out")


def _further(entries: list[dict[str, str]], where: str) -> tuple[Further, ...]:
    """The further results; raises `StudyError` if a machine or study does not exist. The studies are not expanded."""
    for index, entry in enumerate(entries):
        for key, kind in (("machine", "machines"), ("study", "studies")):
            try:
                configuration.check_name(kind, entry[key])
            except StudyError as error:
                raise StudyError(f"{where}: further_results[{index}].{key}: {error}") from None
    return tuple(Further(entry["machine"], entry["study"]) for entry in entries)


def _runs(
    grids: list[dict[str, Any]],
    datasets: dict[str, Dataset],
    members: Members,
    where: str,
    most_ranks: MostRanks | None,
) -> tuple[tuple[PlannedRun, ...], dict[str, tuple[PlannedRun, ...]]]:
    """All runs of all grids, where equal points of two grids are one run; and those of each ``part``."""
    runs: dict[tuple, PlannedRun] = {}
    parts: dict[str, dict[tuple, PlannedRun]] = {}
    for index, grid in enumerate(grids):
        found = list(_grid_runs(grid, datasets, members, place := f"{where}: runs[{index}]", most_ranks))
        feasibility.refuse_idle(found, (name for name in grid if name in PARAMETERS), place)
        for name, changes in grid.get("tuning", {}).items():
            of_arm = [run for run in found if run.arms and run.arms[0].name == name]
            feasibility.refuse_idle(of_arm, changes, f"{place}.tuning.{name}")
        for run in found:
            runs[run.key] = _merged(runs[run.key], run) if run.key in runs else run
            if "part" in grid:
                parts.setdefault(grid["part"], {})[run.key] = run
    return tuple(runs.values()), {name: tuple(found.values()) for name, found in parts.items()}


def _merged(one: PlannedRun, other: PlannedRun) -> PlannedRun:
    """One run of two grids that have the same: with the parts that it has in the comparisons of both."""
    arms = one.arms + tuple(arm for arm in other.arms if arm not in one.arms)
    longest = max(one.walltime_minutes or 0, other.walltime_minutes or 0) or None
    return dataclasses.replace(one, may_fail=other.may_fail or one.may_fail, arms=arms, walltime_minutes=longest)


def _grid_runs(
    grid: dict[str, Any],
    datasets: dict[str, Dataset],
    members: Members,
    place: str,
    most_ranks: MostRanks | None,
) -> Iterator[PlannedRun]:
    axes = {name: _values(name, grid[name]) for name in (*PARAMETERS, *programs.own_names(grid)) if name in grid}
    is_available = grid.get("gpus") == AVAILABLE
    if is_available:
        axes["gpus"] = _doublings(most_ranks, place)
    repeats = range(1, grid.get("repeats", 1) + 1)
    declared = tuning.declared(grid, place)
    number = math.prod(map(len, axes.values())) * len(repeats) * (1 + len(declared))
    if number > MOST_RUNS:
        raise StudyError(f"{place}: the grid has {number} runs, {MOST_RUNS} are the most that a grid may have")
    for point in itertools.product(*axes.values()):
        given = {**dict(zip(axes, point, strict=True)), "repeat": 1}
        planned = functools.partial(_planned, given, dataset_of(given, datasets, place), grid, members)
        try:
            first = list(tuning.compared(planned, declared, place))
        except feasibility.UnsharedEpochs:
            if not is_available or given["gpus"] == 1:
                raise
            continue
        for repeat in repeats:
            yield from (run.repeated(repeat) for run in first)


def _planned(
    given: dict[str, Any],
    found: Dataset,
    grid: dict[str, Any],
    members: Members,
    changes: Mapping[str, Any],
    place: str,
) -> PlannedRun:
    """One run. changes: what an arm sets instead of the grid."""
    set_by_arm = {name: _values(name, value)[0] for name, value in changes.items()}
    values = programs.folded({**given, **set_by_arm}, found.spec, place) | {"dataset": found.id}
    values |= _listed_members(values, members, place)
    run = PlannedRun(
        _complete(values, found, place), found, grid.get("may_fail"), walltime_minutes=grid.get("walltime_minutes")
    )
    feasibility.check(run, place)
    return run


def _complete(given: dict[str, Any], found: Dataset, place: str) -> dict[str, Any]:
    """All parameters in the declared order; missing ones get their default."""
    values = {}
    given = {**programs.defaults(found.spec), **given}
    for name, parameter in PARAMETERS.items():
        if name in given:
            values[name] = given[name]
            continue
        default = parameter.default
        if isinstance(default, FromBenchmark):
            default = default.find(found.spec, given["scaling"])
            if default is None:
                raise StudyError(
                    f"{place}: the key '{name}' is missing; "
                    f"{found.benchmark} has no default under {given['scaling']} scaling"
                )
        if isinstance(default, FromGrid):
            default = default.find(given)
            if default is None:
                raise StudyError(f"{place}: the key '{name}' is missing")
        values[name] = default
    return values


def _listed_members(given: dict[str, Any], members: Members, place: str) -> dict[str, str]:
    """The key ``members`` with the list that a grid names in it; empty if it names none."""
    name = given.get("members", ensemble.UNNAMED)
    if name == ensemble.UNNAMED:
        return {}
    if name not in members:
        known = f"; known lists: {', '.join(members)}" if members else "; it declares none under members"
        raise StudyError(f"{place}.members: there is no list '{name}'{checked.nearest(name, members)}{known}")
    return {"members": ensemble.as_text(members[name])}


def _loading(entries: list[dict[str, Any]], datasets: dict[str, Dataset], where: str) -> tuple[LoadingMeasurement, ...]:
    loading: list[LoadingMeasurement] = []
    for index, entry in enumerate(entries):
        found = dataset_of(entry, datasets, f"{where}: loading[{index}]")
        if identity(found) in [identity(earlier.dataset) for earlier in loading]:
            raise StudyError(f"{where}: loading[{index}].dataset: '{found.key}' is measured by another entry already")
        _check_measured(found, _several(entry["loader"]), f"{where}: loading[{index}].loader")
        loaders, caches = _several(entry["loader"]), _several(entry.get("page_cache", "warm"))
        loading.append(LoadingMeasurement(found, tuple(loaders), tuple(caches), entry["repeats"]))
    return tuple(loading)


def _check_measured(found: Dataset, loaders: list[str], place: str) -> None:
    """Raise `StudyError` for a loader of tables on images, the reverse, and a loader of narrower tables."""
    kind = workloads.get(found.benchmark, found.spec).kind
    fitting = tuple(FORMATS) if kind == "images" else tuple(LOADERS)
    for loader in loaders:
        if loader not in fitting:
            raise StudyError(f"{place}: {loader}: {found.benchmark}'s samples are {kind}; use {', '.join(fitting)}")
        too_wide = found.too_wide(loader)
        if too_wide:
            raise StudyError(f"{place}: {loader}: {too_wide}")


def _values(name: str, given: Any) -> list:
    """The values of a key; 1 and 1.0 are one number, so that they name one run."""
    kind = PARAMETERS[name].kind if name in PARAMETERS else None
    as_held: Any = float if isinstance(kind, Number) else lambda value: value
    return [as_held(value) for value in _several(given)]


def _references(entries: list[dict[str, Any]], where: str) -> tuple[Reference, ...]:
    found = []
    for index, entry in enumerate(entries):
        place, of = f"{where}: references[{index}]", entry.get("of", "runs")
        low, high, calibrated = entry.get("low"), entry.get("high"), "relative_to" in entry
        if low is None and high is None:
            raise StudyError(f"{place}: give low, high or both: without a limit nothing is compared")
        if calibrated and of == "loads":
            raise StudyError(f"{place}.relative_to: a calibration is timed beside runs only; leave it out for loads")
        found.append(Reference(entry["quantity"], of, entry.get("point", {}), calibrated, low, high))
    return tuple(found)


def _several(value: Any) -> list:
    return value if isinstance(value, list) else [value]
