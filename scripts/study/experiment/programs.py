"""Grids of benchmarks that are given by a command: their datasets, their own parameters, and what they refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from study.core import checked, configuration
from study.core.errors import StudyError
from study.experiment import metric_names
from study.experiment.parameter import FromBenchmark
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.communication import KEYS as COMMUNICATION
from study.experiment.study import Dataset, PlannedRun
from study.experiment.target import Target
from study.workloads import command
from study.workloads.command import own_parameters, placeholders

SOURCE = "command"  # of the dataset that such a benchmark does not have
# Grid keys that the launch obeys, whatever the program does. Others must be placeholders, or they would do nothing.
OBEYED = ("benchmark", "dataset", "scaling", "work", own_parameters.NAME, "gpus", "batch_scaling", "loader",
          "core_limit", "control", "repeat", *COMMUNICATION)  # fmt: skip
# Placeholders, of which one must be there if a grid changes the key.
HANDED_OVER = {
    "epochs": ("epochs", "epochs_per_rank", "steps_per_rank"),
    "batch_size": command.OF_BATCH,
}
TOLD_SCALING = ("samples_per_rank", "steps_per_rank", "scaling")  # placeholders that differ between scaling modes
WITHOUT = ("dataset", "loader")  # which a program does not have, as it loads its own data
NOTHING = "none"  # their value in its runs
GIVEN_TO_ALL = ("repeats", "tuning", "part", "may_fail", "walltime_minutes")  # keys of grids that are no grid keys


def specs(grids: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """{benchmark: its YAML, completed} of the commands that grids name; they need not satisfy the schema.

    Raises:
        StudyError: a command that could not run.
    """
    found = {}
    for name in dict.fromkeys(_names(grids)):
        path = configuration.files("benchmarks").get(name)
        content = checked.read(path)[0] if path else None
        if path is None or not isinstance(content, dict) or not command.is_command(content):
            continue
        spec = command.completed(configuration.load_named("benchmarks", name), path)
        command.check(spec, PARAMETERS, checked.shown(path))
        metric_names.check([each for each in spec["metrics"] if each not in command.OF_TRAINING], checked.shown(path))
        found[name] = spec
    return found


def _names(grids: Iterable[Any]) -> Iterator[str]:
    for grid in grids:
        named = grid.get("benchmark") if isinstance(grid, dict) else None
        yield from (each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))


def dataset(name: str, spec: dict[str, Any]) -> Dataset:
    """What stands for the dataset of a command: it has no files."""
    samples, target = spec["workload"]["train_samples"], spec.get("target_quality")
    return Dataset(name, NOTHING, name, {"source": SOURCE}, spec, None, samples, Target.of(target))


def of_others(values: Iterable[Any]) -> list[str]:
    """Values of `WITHOUT` as texts, without those of commands."""
    return [str(value) for value in values if value != NOTHING]


def own_names(grid: Mapping[str, Any]) -> list[str]:
    """The keys of a grid, or of an arm, that are parameters of its program."""
    return [name for name in grid if name not in PARAMETERS and name not in GIVEN_TO_ALL]


def folded(values: Mapping[str, Any], spec: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values of grid keys, where the program's own parameters are one text.

    Raises:
        StudyError: the benchmark has no such parameter, or it cannot have the value.
    """
    own, declared = {name: values[name] for name in own_names(values)}, spec.get("parameters", {})
    if own_parameters.NAME in values:
        raise StudyError(f"{place}.{own_parameters.NAME}: give each parameter of the program by its own name")
    for name in own:
        if name not in declared:
            told = ", ".join(declared) or "none"
            raise StudyError(f"{place}.{name}: the benchmark has no such parameter; its own: {told}")
    rest = {name: value for name, value in values.items() if name not in own}
    text = own_parameters.as_text(own, declared, place)
    return {**rest, **({own_parameters.NAME: text} if own else {})}


def defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Grid keys that a command's YAML sets in place of a grid."""
    return {"work": spec["work"]} if command.is_command(spec) else {}


def check(run: PlannedRun, place: str) -> None:
    """Raise `StudyError` for a run whose grid keys would not change what its program does."""
    named = _named(run.spec)
    for name, parameter in PARAMETERS.items():
        if name in OBEYED or _is_handed_over(name, named) or run[name] == _default(parameter.default, run):
            continue
        wanted = " or ".join(f"{{{each}}}" for each in HANDED_OVER.get(name, (name,)))
        raise StudyError(f"{place}.{name}: {run['benchmark']} is a command without {wanted} in its words; leave it out")
    if run.gpus == 1:
        return
    if run.divides_epochs and not named & {"epochs_per_rank", "steps_per_rank"}:
        raise StudyError(
            f"{place}.work: epochs are divided among the ranks, but the command has no {{epochs_per_rank}}; give it, "
            f"or say in config/benchmarks/{run['benchmark']}.yaml what the ranks divide (work: samples for data "
            "parallel training)"
        )
    if run["scaling"] == "strong" and run["work"] == command.STEPS and "steps_per_rank" not in named:
        raise StudyError(
            f"{place}.work: steps are divided among the ranks, but the command has no {{steps_per_rank}}; give it, or "
            f"say work: fixed in config/benchmarks/{run['benchmark']}.yaml if the program divides them itself"
        )
    if run["batch_scaling"] != "none" and not _is_handed_over("batch_size", named):
        raise StudyError(
            f"{place}.batch_scaling: {run['benchmark']} is a command without {{batch_size_per_rank}} in its words, so "
            "its batch would stay the same; give it, or leave batch_scaling out"
        )


def undivided(runs: Iterable[PlannedRun]) -> list[str]:
    """A warning for each command that may divide samples where the record says that each rank trains on all of them.

    Under weak and batch scaling nothing is divided. A program that divides the samples by the number of ranks does so
    under any scaling, unless one of its words tells it another number.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        divides = command.is_command(run.spec) and run["work"] in (command.SAMPLES, command.FIXED)
        if divides and run.gpus > 1 and run["scaling"] != "strong" and not _named(run.spec) & set(TOLD_SCALING):
            found.setdefault((run["benchmark"], run["scaling"]), set()).add(run.gpus)
    return [
        f"{benchmark} {scaling} scaling on {', '.join(map(str, sorted(ranks)))} ranks: each rank must train on all "
        "samples, but the command has no {samples_per_rank} by which to know; if its ranks divide them, as "
        "DistributedSampler does, its throughput and work are too high by the number of ranks: use scaling: strong"
        for (benchmark, scaling), ranks in found.items()
    ]


def lacking(values: Mapping[str, Any], spec: Mapping[str, Any]) -> set[str]:
    """The grid keys that a run of a command does not have: neither the launch obeys them, nor do its words name them.

    The number of epochs is compared with what the program tells. A batch size that its file gives is that of a program
    which sets it itself. values: {grid key: value} of the run.
    """
    named, obeyed = _named(spec), {*OBEYED, "epochs"}.difference(WITHOUT)
    if command.knows_batch(spec, values["batch_size"]):
        obeyed.add("batch_size")
    return {name for name in PARAMETERS if name not in obeyed and not _is_handed_over(name, named)}


def _named(spec: Mapping[str, Any]) -> set[str]:
    """The placeholders in the words of a command."""
    return {name for word in command.words(spec) for name in placeholders.named(word)}


def _is_handed_over(name: str, named: Collection[str]) -> bool:
    """Whether a command gets the value of a grid key, or what follows from it. named: its placeholders."""
    return name in named or any(each in named for each in HANDED_OVER.get(name, ()))


def _default(default: Any, run: PlannedRun) -> Any:
    return default.find(run.spec, run["scaling"]) if isinstance(default, FromBenchmark) else default
