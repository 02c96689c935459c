"""Grids of benchmarks that are given by a command: their datasets, their own parameters, and what they refuse."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment import metric_names
from study.experiment.parameter import FromBenchmark
from study.experiment.parameters import PARAMETERS
from study.experiment.study import Dataset, PlannedRun
from study.experiment.target import Target
from study.workloads import command
from study.workloads.command import code_files, own_parameters, patterns

SOURCE = "command"  # of the dataset that such a benchmark does not have
# Grid keys that the launch obeys, whatever the program does. Others must be placeholders, or they would do nothing.
OBEYED = ("benchmark", "dataset", "scaling", "work", own_parameters.NAME, "gpus", "batch_scaling", "loader",
          "core_limit", "control", "repeat", "intra_op_threads")  # fmt: skip
# Placeholders, of which one must be there if a grid changes the key.
HANDED_OVER = {
    "epochs": ("epochs", "epochs_per_rank", "steps_per_rank"),
    "batch_size": command.OF_BATCH,
}
TOLD_RANKS = ("ranks", "gpus", "ranks_on_node")  # placeholders for the number of ranks
VARIABLE = "WORLD_SIZE"  # also LOCAL_WORLD_SIZE
THREADS = "OMP_NUM_THREADS"
TOLD_SCALING = ("samples_per_rank", "steps_per_rank", "scaling")  # placeholders that differ between scaling modes
WITHOUT = ("dataset", "loader")  # which a program does not have, as it loads its own data
NOTHING = "none"  # their value in its runs
GIVEN_TO_ALL = ("repeats", "tuning", "part", "may_fail", "walltime_minutes")  # keys of grids that are no grid keys


def load_specs(grids: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Load the YAML of each command that grids name, {benchmark: completed YAML}. grids: need not satisfy the schema.

    Raises:
        StudyError: a command that could not run.
    """
    commands = {}
    for name in dict.fromkeys(_list_benchmarks(grids)):
        path = configuration.list_files("benchmarks").get(name)
        content = validation.read_yaml_with_tree(path)[0] if path else None
        if path is None or not isinstance(content, dict) or not command.is_command(content):
            continue
        spec = command.complete_spec(configuration.load_named("benchmarks", name), path)
        command.check_command(spec, PARAMETERS, validation.shorten_path(path))
        own_metrics = [name for name in spec["metrics"] if name not in command.OF_TRAINING]
        metric_names.check_pattern_names(own_metrics, validation.shorten_path(path))
        commands[name] = spec
    return commands


def _list_benchmarks(grids: Iterable[Any]) -> Iterator[str]:
    """Yield the benchmarks that grids name."""
    for grid in grids:
        names = grid.get("benchmark") if isinstance(grid, dict) else None
        yield from (name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str))


def build_dataset(name: str, spec: dict[str, Any]) -> Dataset:
    """The `Dataset` of a command, which has no files."""
    samples, target = spec["workload"]["train_samples"], spec.get("target_quality")
    return Dataset(name, NOTHING, name, {"source": SOURCE}, spec, None, samples, Target.from_declaration(target))


def list_given_values(values: Iterable[Any]) -> list[str]:
    """The datasets or loaders of runs as texts, without the `NOTHING` of commands."""
    return [str(value) for value in values if value != NOTHING]


def list_own_names(grid: Mapping[str, Any]) -> list[str]:
    """The keys of a grid, or of an arm, that are the program's own parameters."""
    return [name for name in grid if name not in PARAMETERS and name not in GIVEN_TO_ALL]


def fold_parameters(values: Mapping[str, Any], spec: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values of grid keys with the program's own parameters joined into one text, ``program_parameters``.

    Raises:
        StudyError: the benchmark has no such parameter, or it cannot have the value.
    """
    own_values, declared = {name: values[name] for name in list_own_names(values)}, spec.get("parameters", {})
    if own_parameters.NAME in values:
        raise StudyError(f"{place}.{own_parameters.NAME}: give each parameter of the program by its own name")
    for name in own_values:
        if name not in declared:
            known_names = ", ".join(declared) or "none"
            raise StudyError(f"{place}.{name}: the benchmark has no such parameter; its own: {known_names}")
    other_values = {name: value for name, value in values.items() if name not in own_values}
    text = own_parameters.as_text(own_values, declared, place)
    return {**other_values, **({own_parameters.NAME: text} if own_values else {})}


def get_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The grid keys that a command's YAML sets, {key: value}."""
    return {"work": spec["work"]} if command.is_command(spec) else {}


def check_run(run: PlannedRun, place: str) -> None:
    """Raise `StudyError` for a grid key of a run that would not change what its program does."""
    used_names = command.list_placeholders(run.spec)
    for name, parameter in PARAMETERS.items():
        is_default = run[name] == _resolve_default(parameter.default, run)
        if is_default or name in OBEYED or _has_placeholder(name, used_names):
            continue
        needed = " or ".join(f"{{{placeholder}}}" for placeholder in HANDED_OVER.get(name, (name,)))
        raise StudyError(f"{place}.{name}: {run['benchmark']} is a command without {needed} in its words; leave it out")
    if run.gpus == 1:
        return
    if run.divides_epochs and not used_names & {"epochs_per_rank", "steps_per_rank"}:
        raise StudyError(
            f"{place}.work: epochs are divided among the ranks, but the command has no {{epochs_per_rank}}; give it, "
            f"or say in config/benchmarks/{run['benchmark']}.yaml what the ranks divide (work: samples for data "
            "parallel training)"
        )
    if run["scaling"] == "strong" and run["work"] == command.STEPS and "steps_per_rank" not in used_names:
        raise StudyError(
            f"{place}.work: steps are divided among the ranks, but the command has no {{steps_per_rank}}; give it, or "
            f"say work: fixed in config/benchmarks/{run['benchmark']}.yaml if the program divides them itself"
        )
    if run.spec["starts"] == command.JOB and not _knows_ranks(run["benchmark"], run.spec):
        raise StudyError(
            f"{place}.gpus: {run['benchmark']} is started once for the job (starts: job), and nothing tells it that it "
            f"has {run.gpus} ranks: give {{ranks}} in its words, or say reads: WORLD_SIZE in config/benchmarks/"
            f"{run['benchmark']}.yaml if it reads that variable"
        )
    if run["batch_scaling"] != "none" and not _has_placeholder("batch_size", used_names):
        raise StudyError(
            f"{place}.batch_scaling: {run['benchmark']} is a command without {{batch_size_per_rank}} in its words, so "
            "its batch would stay the same; give it, or leave batch_scaling out"
        )


def _knows_ranks(benchmark: str, spec: Mapping[str, Any]) -> bool:
    """Whether a program that starts its ranks itself gets their number: by a word, or by a variable that it reads."""
    has_word = command.list_placeholders(spec) & set(TOLD_RANKS) or any(VARIABLE in word for word in spec["command"])
    return bool(has_word or spec.get("reads")) or _has_in_code(VARIABLE, spec["folder"], tuple(spec["code"]), benchmark)


@functools.cache
def _has_in_code(text: str, folder: str, code: tuple[str, ...], benchmark: str) -> bool:
    """Whether a file of a program's code has a text. benchmark: its name, for messages."""
    try:
        contents = code_files.read_contents({"folder": folder, "code": code})
        return any(text.encode() in content for _, content in contents)
    except StudyError as error:
        raise StudyError(f"config/benchmarks/{benchmark}.yaml: code: {error}") from None


def describe_threads(runs: Iterable[PlannedRun], machine: Mapping[str, Any]) -> list[str]:
    """A line for each command about the threads that its ranks get, if neither its grid nor the machine's file says."""
    unset = {run["benchmark"] for run in runs if command.is_command(run.spec) and not run["intra_op_threads"]}
    if not unset or THREADS in machine.get("environment", {}):
        return []
    number = machine["cores_per_rank"]
    return [
        f"{', '.join(sorted(unset))}: each rank gets {THREADS}={number} (cores_per_rank of config/machines/"
        f"{machine['name']}.yaml), so that ranks do not take each other's cores; a program started by hand would use "
        "all. The grid key intra_op_threads gives another number"
    ]


def warn_of_hidden_exit_codes(runs: Iterable[PlannedRun]) -> list[str]:
    """A warning for each command whose exit code is not that of its program."""
    specs = {run["benchmark"]: run.spec for run in runs if command.is_command(run.spec)}
    return [
        f"{name}: an error of the program is not in the exit code ({line[:60]}): set -o {code_files.PIPEFAIL}"
        for name, spec in specs.items()
        if (line := code_files.find_hidden_exit_code(spec))
    ]


def warn_of_undivided_samples(runs: Iterable[PlannedRun]) -> list[str]:
    """A warning for each command whose ranks may divide the samples while the record counts all of them for each rank.

    Under weak and batch scaling nothing is divided. A program that divides the samples by the number of ranks does so
    under any scaling, unless one of its words tells it another number.
    """
    ranks_by_scaling: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        divides = command.is_command(run.spec) and run["work"] in (command.SAMPLES, command.FIXED)
        knows_share = divides and command.list_placeholders(run.spec) & set(TOLD_SCALING)
        if divides and run.gpus > 1 and run["scaling"] != "strong" and not knows_share:
            ranks_by_scaling.setdefault((run["benchmark"], run["scaling"]), set()).add(run.gpus)
    return [
        f"{benchmark} {scaling} scaling on {', '.join(map(str, sorted(ranks)))} ranks: each rank must train on all "
        "samples, but the command has no {samples_per_rank} by which to know; if its ranks divide them, as "
        "DistributedSampler does, its throughput and work are too high by the number of ranks: use scaling: strong"
        for (benchmark, scaling), ranks in ranks_by_scaling.items()
    ]


def warn_of_unknown_owners(runs: Iterable[PlannedRun]) -> list[str]:
    """A warning for each throughput in an output of which nothing says whether it is that of one rank or of all."""
    metrics = {
        (run["benchmark"], metric.name): metric
        for run in runs
        if command.is_command(run.spec) and run.gpus > 1
        for metric in (patterns.parse_metric(*each) for each in run.spec["metrics"].items())
    }
    return [
        f"{benchmark}: metrics.{name}: is taken for that of all ranks; if each rank prints its own, say of: rank, "
        "else of: job"
        for (benchmark, name), metric in metrics.items()
        if metric.has_unknown_owner
    ]


def find_inapplicable_keys(values: Mapping[str, Any], spec: Mapping[str, Any]) -> set[str]:
    """The grid keys without effect in a run of a command: the launch does not obey them, and no placeholder names them.

    The number of epochs is compared with what the program tells. A batch size that its file gives is that of a program
    which sets it itself. values: {grid key: value} of the run.
    """
    used_names, obeyed = command.list_placeholders(spec), {*OBEYED, "epochs"}.difference(WITHOUT)
    if command.is_batch_known(spec, values["batch_size"]):
        obeyed.add("batch_size")
    return {name for name in PARAMETERS if name not in obeyed and not _has_placeholder(name, used_names)}


def _has_placeholder(name: str, used_names: Collection[str]) -> bool:
    """Whether a command gets the value of a grid key, or one that follows from it, by a placeholder."""
    return name in used_names or any(each in used_names for each in HANDED_OVER.get(name, ()))


def _resolve_default(default: Any, run: PlannedRun) -> Any:
    """The value of a default, which may follow from the benchmark's YAML."""
    return default.find(run.spec, run["scaling"]) if isinstance(default, FromBenchmark) else default
