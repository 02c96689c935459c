"""Grids of benchmarks that are given by a command: their datasets, their own parameters, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from study.core import checked, configuration
from study.core.errors import StudyError
from study.experiment import metric_names
from study.experiment.parameter import FromBenchmark
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.communication import KEYS as COMMUNICATION
from study.experiment.study import Dataset, PlannedRun
from study.experiment.target import Target
from study.machines.limits import LIMITS
from study.workloads import command
from study.workloads.command import own_parameters, placeholders

SOURCE = "command"  # of the dataset that such a benchmark does not have
# Grid keys that the launch obeys, whatever the program does. Others must be placeholders, or they would do nothing.
OBEYED = ("benchmark", "dataset", "scaling", "work", own_parameters.NAME, "gpus", "batch_scaling", "loader",
          "core_limit", "control", "repeat", *LIMITS, *COMMUNICATION)  # fmt: skip
# Placeholders, of which one must be there if a grid changes the key.
HANDED_OVER = {
    "epochs": ("epochs", "epochs_per_rank", "steps_per_rank"),
    "batch_size": ("batch_size", "batch_size_per_rank", "steps_per_rank"),
}
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
    return Dataset(name, "none", name, {"source": SOURCE}, spec, None, samples, Target.of(target))


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
    named = {name for word in command.words(run.spec) for name in placeholders.named(word)}
    for name, parameter in PARAMETERS.items():
        if name in OBEYED or name in named or run[name] == _default(parameter.default, run):
            continue
        handed = HANDED_OVER.get(name, (name,))
        if not named & set(handed):
            wanted = " or ".join(f"{{{each}}}" for each in handed)
            raise StudyError(
                f"{place}.{name}: {run['benchmark']} is a command without {wanted} in its words; leave it out"
            )
    if run.divides_epochs and run.gpus > 1 and not named & {"epochs_per_rank", "steps_per_rank"}:
        raise StudyError(
            f"{place}.work: epochs are divided among the ranks, but the command has no {{epochs_per_rank}}; give it, "
            f"or say in config/benchmarks/{run['benchmark']}.yaml what the ranks divide (work: samples for data "
            "parallel training)"
        )


def _default(default: Any, run: PlannedRun) -> Any:
    return default.find(run.spec, run["scaling"]) if isinstance(default, FromBenchmark) else default
