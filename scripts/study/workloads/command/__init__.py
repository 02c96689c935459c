"""Benchmarks of ``kind: command``: a program of the user's is started and measured; nothing of it is imported.

Such a benchmark has no dataset and no loader. ``config/benchmarks/NAME.yaml`` gives its command, and what strong
scaling divides among the ranks.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.errors import StudyError
from study.workloads.command import code_files, placeholders

KIND = "command"
EPOCHS, STEPS, SAMPLES, FIXED = WORK = ("epochs", "steps", "samples", "fixed")
RANK, NODE, JOB = STARTS = ("rank", "node", "job")
# What other benchmarks' files say, and the rest of the library reads.
ABSENT: Mapping[str, Any] = {
    "files": {}, "batch_size": 1, "learning_rate": None, "optimizer": "the program's", "loss": "the program's",
    "shuffle": False, "validation_share": 0, "model": {}, "starts": RANK, "work": EPOCHS, "code": [],
    "environment": {}, "parameters": {}, "metrics": {},
}  # fmt: skip
SCRIPTS = (".py", ".sh")  # ends of a word that names a file of the program
# Placeholders by which a program gets its batch size, or what follows from it.
OF_BATCH = ("batch_size", "batch_size_per_rank", "steps_per_rank")
# Columns that a pattern may fill, besides names of its own, which are columns of quality.
OF_TRAINING = ("throughput_samples_per_s", "time_per_epoch_s", "time_per_step_s")


def is_command(spec: Mapping[str, Any]) -> bool:
    """Whether a benchmark's YAML, or what a run's definition has of it, is of a command."""
    return spec.get("kind") == KIND


def completed(spec: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A command's YAML with its defaults, and the folder in which it runs. path: of the YAML."""
    folder = path.absolute().parents[2] / spec.get("folder", ".")
    epochs = {"minimum_per_rank": 1, **spec["epochs"]}
    given = {key: value for key, value in spec.items() if key != "folder"}
    return {**ABSENT, **given, "epochs": epochs, "folder": str(folder.resolve())}


def samples_of_rank(train_samples: int, scaling: str, work: str, ranks: int) -> int:
    """Samples of a rank in an epoch: its share if the ranks divide the samples of a fixed work, else all."""
    return -(-train_samples // ranks) if scaling == "strong" and work != EPOCHS else train_samples


def words(spec: Mapping[str, Any]) -> list[str]:
    """All words of the command, with those of a resumed run."""
    return [*spec["command"], *spec.get("resume", [])]


def knows_batch(spec: Mapping[str, Any], batch_size: int) -> bool:
    """Whether the batch size is known: the program is handed it, or its file says it. batch_size: of the run."""
    told = {name for word in words(spec) for name in placeholders.named(word)}
    return batch_size != ABSENT["batch_size"] or not told.isdisjoint(OF_BATCH)


def check(spec: Mapping[str, Any], grid_keys: Iterable[str], where: str) -> None:
    """Raise `StudyError` for a command that could not run, with file and key.

    grid_keys: that placeholders may name. where: the YAML, for messages.
    """
    for reason in _refusals(spec, set(grid_keys)):
        raise StudyError(f"{where}: {reason}")


def _refusals(spec: Mapping[str, Any], grid_keys: set[str]) -> Iterator[str]:
    folder = Path(spec["folder"])
    if not folder.is_dir():
        yield f"folder: {folder} is no folder"
    for name in spec["parameters"]:
        if name in grid_keys or name in placeholders.DERIVED:
            yield f"parameters.{name}: is a name of the study's own; choose another one"
    known = {*grid_keys, *spec["parameters"], *placeholders.DERIVED}
    for key in ("command", "resume"):
        also = {placeholders.CHECKPOINT} if "resume" in spec else set()
        for word in spec.get(key, []):
            for name in placeholders.named(word):
                if name not in known | also:
                    near = checked.nearest(name, sorted(known | also))
                    yield f"{key}: {{{name}}} is no placeholder{near}; see docs/commands.md"
    if "resume" in spec and not any(placeholders.CHECKPOINT in placeholders.named(word) for word in words(spec)):
        yield "resume: no word has {checkpoint}, the path at which the program writes and finds its checkpoint"
    for file in spec["code"]:
        if not (folder / file).exists():
            yield f"code: {folder / file} does not exist; give files and folders of the program, relative to {folder}"
    if why := code_files.link_fault(spec):
        yield f"code: {why}"
    if why := _script_fault(spec, folder):
        yield f"command: {why}"
    if why := _environment_fault(spec, folder):
        yield f"environment: {why}"
    for name, pattern in spec["metrics"].items():
        if why := _pattern_fault(name, pattern):
            yield f"metrics.{name}: {why}"
    for name, declared in spec["parameters"].items():
        if why := _parameter_fault(declared):
            yield f"parameters.{name}: {why}"


def _script_fault(spec: Mapping[str, Any], folder: Path) -> str | None:
    """The first word that is a script's name must be a file; an image has files of its own."""
    names = (word for word in spec["command"] if word.endswith(SCRIPTS) and not re.search(r"^-|[{\s]", word))
    script = next(names, None)
    if script is None or spec["environment"].get("image") or (folder / script).exists() or shutil.which(script):
        return None
    return f"{folder / script} does not exist; give the program relative to {folder}, or its whole path"


def _environment_fault(spec: Mapping[str, Any], folder: Path) -> str | None:
    environment = spec["environment"]
    if python := environment.get("python"):
        program = folder / python / "bin" / "python"
        if not program.exists():
            return f"python: {program} does not exist; give a virtual environment or a conda prefix"
    if (image := environment.get("image")) and not (folder / image).exists():
        return f"image: {folder / image} does not exist; give a container image for apptainer"
    return None


def _pattern_fault(name: str, pattern: str) -> str | None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"{pattern!r} is no regular expression: {error}"
    if groups != 1:
        return f"{pattern!r} has {groups} groups; give one, around the number: 'images/s: ([0-9.]+)'"
    return None


def _parameter_fault(declared: Mapping[str, Any]) -> str | None:
    return None if fits(declared, declared["default"]) else f"default: {declared['default']} is no {declared['type']}"


def fits(declared: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is one of a parameter of the program."""
    if choices := declared.get("choices"):
        return value in choices
    kinds: dict[str, Any] = {"integer": int, "number": (int, float), "flag": bool, "text": str}
    return isinstance(value, kinds[declared["type"]]) and isinstance(value, bool) == (declared["type"] == "flag")
