"""Benchmarks of ``kind: command``: a program of the user's is started and measured; nothing of it is imported.

Such a benchmark has no dataset and no loader. ``config/benchmarks/NAME.yaml`` gives its command, and what strong
scaling divides among the ranks.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core import validation
from study.core.errors import StudyError
from study.workloads.command import code_files, patterns, placeholders
from study.workloads.command.patterns import OF_TRAINING as OF_TRAINING

KIND = "command"
EPOCHS, STEPS, SAMPLES, FIXED = WORK = ("epochs", "steps", "samples", "fixed")
RANK, NODE, JOB = STARTS = ("rank", "node", "job")
# What other benchmarks' files say, and the rest of the library reads.
ABSENT: Mapping[str, Any] = {
    "files": {}, "batch_size": 1, "learning_rate": None, "optimizer": "the program's", "loss": "the program's",
    "shuffle": False, "validation_share": 0, "model": {}, "starts": RANK, "work": EPOCHS, "code": [],
    "environment": {}, "parameters": {}, "metrics": {}, "workload": {"train_samples": None},
}  # fmt: skip
SCRIPTS = (".py", ".sh")  # ends of a word that names a file of the program
# Placeholders by which a program gets its batch size, or what follows from it.
OF_BATCH = ("batch_size", "batch_size_per_rank", "steps_per_rank")
ONE_OR_SEVERAL = ("success", "outputs", "fresh", "reuses")  # keys whose value may be a text or a list of texts
OF_READING = (
    "metrics",
    "success",
    "outputs",
    "reuses",
    "drop_last",
)  # keys that say how a run's output and files are read
# Placeholders whose value follows from the number of samples.
OF_SAMPLES = {"train_samples", "samples_per_rank", "steps_per_rank"}


def is_command(spec: Mapping[str, Any]) -> bool:
    """Whether a benchmark's YAML, or its part in a run's definition, is of a command."""
    return spec.get("kind") == KIND


def complete_spec(spec: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Fill in the defaults of a command's YAML, and the folder in which it runs. path: of the YAML."""
    folder = path.absolute().parents[2] / spec.get("folder", ".")
    epochs = {"minimum_per_rank": 1, **spec["epochs"]}
    declared = {key: value for key, value in spec.items() if key != "folder"}
    words = {key: [str(word) for word in spec[key]] for key in ("command", "resume") if key in spec}
    lists = {key: [spec[key]] for key in ONE_OR_SEVERAL if isinstance(spec.get(key), str)}
    return {**ABSENT, **declared, **words, **lists, "epochs": epochs, "folder": str(folder.resolve())}


def list_metrics(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The metrics of a command's YAML, {name: its declaration}; a pattern alone is one with nothing but its pattern."""
    return {
        name: {"pattern": each} if isinstance(each, str) else each for name, each in spec.get("metrics", {}).items()
    }


def select_reading(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a command's YAML by which its output is read; another value reads it again, and trains nothing."""
    return {key: spec[key] for key in OF_READING if spec.get(key) or spec.get(key) is False}


def count_rank_samples(train_samples: int | None, scaling: str, work: str, ranks: int) -> int | None:
    """Number of a rank's samples in an epoch: its share if the ranks divide a fixed work, else all; None if unknown."""
    if train_samples is None:
        return None
    return -(-train_samples // ranks) if scaling == "strong" and work != EPOCHS else train_samples


def list_placeholders(spec: Mapping[str, Any]) -> set[str]:
    """The names of the placeholders in the words of the command and of a resumed run."""
    words = [*spec["command"], *spec.get("resume", [])]
    return {name for word in words for name in placeholders.list_placeholders(word)}


def is_batch_known(spec: Mapping[str, Any], batch_size: int) -> bool:
    """Whether a run's batch size is known: the program gets it, or its file gives it. batch_size: the run's."""
    return batch_size != ABSENT["batch_size"] or not list_placeholders(spec).isdisjoint(OF_BATCH)


def check_command(spec: Mapping[str, Any], grid_keys: Iterable[str], where: str) -> None:
    """Raise `StudyError` for a command that could not run, with file and key.

    grid_keys: that placeholders may name. where: the YAML, for messages.
    """
    for reason in _list_faults(spec, set(grid_keys)):
        raise StudyError(f"{where}: {reason}")


def _list_faults(spec: Mapping[str, Any], grid_keys: set[str]) -> Iterator[str]:
    """Yield the faults of a command's YAML, each with its key."""
    folder = Path(spec["folder"])
    if not folder.is_dir():
        yield f"folder: {folder} is no folder"
    for name in spec["parameters"]:
        if name in grid_keys or name in placeholders.DERIVED:
            yield f"parameters.{name}: is a name of the study's own; choose another one"
    known_names = {*grid_keys, *spec["parameters"], *placeholders.DERIVED}
    for key in ("command", "resume"):
        further = {placeholders.CHECKPOINT} if "resume" in spec else set()
        for word in spec.get(key, []):
            for name in placeholders.list_placeholders(word):
                if name not in known_names | further:
                    near = validation.suggest_nearest(name, sorted(known_names | further))
                    yield f"{key}: {{{name}}} is no placeholder{near}; see docs/commands.md"
    if spec["workload"]["train_samples"] is None:
        for name in sorted(list_placeholders(spec) & OF_SAMPLES):
            yield f"command: {{{name}}} needs the number of samples; give workload: {{train_samples: NUMBER}}"
    if "resume" in spec and placeholders.CHECKPOINT not in list_placeholders(spec):
        yield "resume: no word has {checkpoint}, the path at which the program writes and finds its checkpoint"
    for file in spec["code"]:
        if not (folder / file).exists():
            yield f"code: {folder / file} does not exist; give files and folders of the program, relative to {folder}"
    if why := code_files.find_link_fault(spec):
        yield f"code: {why}"
    if why := find_script_fault(spec, folder):
        yield f"command: {why}"
    if why := _find_environment_fault(spec, folder):
        yield f"environment: {why}"
    for name, declared in spec["metrics"].items():
        try:
            patterns.parse_metric(name, declared)
        except ValueError as error:
            yield f"metrics.{name}: {error}"
    for pattern in spec.get("success", []):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            yield f"success: {pattern!r} is no regular expression: {error}"
    if why := _find_fresh_fault(spec, folder):
        yield f"fresh: {why}"
    for name, declared in spec["parameters"].items():
        if not is_valid_value(declared, declared["default"]):
            yield f"parameters.{name}: default: {declared['default']} is no {declared['type']}"


def find_script_fault(spec: Mapping[str, Any], folder: Path) -> str | None:
    """Why the command's first script does not exist; None if it does, or is in a container's image."""
    names = (word for word in spec["command"] if word.endswith(SCRIPTS) and not re.search(r"^-|[{\s]", word))
    script = next(names, None)
    if script is None or spec["environment"].get("image") or (folder / script).exists() or shutil.which(script):
        return None
    return f"{folder / script} does not exist; give the program relative to {folder}, or its whole path"


def _find_environment_fault(spec: Mapping[str, Any], folder: Path) -> str | None:
    """Why the program's virtual environment or image cannot be used; None if it exists."""
    environment = spec["environment"]
    if python := environment.get("python"):
        program = folder / python / "bin" / "python"
        if not program.exists():
            return f"python: {program} does not exist; give a virtual environment or a conda prefix"
    if (image := environment.get("image")) and not (folder / image).exists():
        return f"image: {folder / image} does not exist; give a container image for apptainer"
    return None


def _find_fresh_fault(spec: Mapping[str, Any], folder: Path) -> str | None:
    """Why what is to be moved aside before each run may not be; None if all may."""
    for pattern in spec.get("fresh", ()):
        if Path(pattern).is_absolute() or not {"..", "."}.isdisjoint(Path(pattern).parts) or not Path(pattern).parts:
            return f"{pattern} leads out of {folder}; name files and folders in it"
        if any(
            path in code.parents or path == code for path in folder.glob(pattern) for code in _list_code(spec, folder)
        ):
            return f"{pattern} names its code, which each run needs"
    return None


def _list_code(spec: Mapping[str, Any], folder: Path) -> list[Path]:
    """The files and folders of a program, and the scripts among the words of its command."""
    return [folder / name for name in [*spec["code"], *(word for word in spec["command"] if word.endswith(SCRIPTS))]]


def is_valid_value(declared: Mapping[str, Any], value: Any) -> bool:
    """Whether a parameter of the program may have a value, by its declaration."""
    if choices := declared.get("choices"):
        return value in choices
    kinds: dict[str, Any] = {"integer": int, "number": (int, float), "flag": bool, "text": str}
    return isinstance(value, kinds[declared["type"]]) and isinstance(value, bool) == (declared["type"] == "flag")
