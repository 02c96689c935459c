"""The study and the machine that the user asked for, on the command line and in configuration files, checked.

A profile of Snakemake names its machine in a file of its own, under its key ``configfile``, which ``--configfile`` on
the command line would hide: Snakemake replaces a profile's key by the same option of the command line.
"""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from study.core import checked, configuration, paths
from study.core.errors import StudyError
from study.core.paths import is_same
from study.experiment import earlier_attempts, expansion
from study.experiment.study import Study
from study.machines import machine
from study.workflow import snakemake_internals
from study.workflow.snakemake_internals import Workflow

PROFILE = {
    "type": "object",
    "properties": {"configfile": {"type": ["string", "array"], "items": {"type": "string", "minLength": 1}}},
}


def find_hidden_files(arguments: Sequence[str], variables: Mapping[str, str], given: Iterable[Path]) -> list[Path]:
    """Config files of the profile in use that are not among those ``given``.

    arguments: Snakemake's. variables: of the environment, where ``SNAKEMAKE_PROFILE`` may name the profile. given: the
    config files that Snakemake uses besides ``config/config.yaml``.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile", default=variables.get("SNAKEMAKE_PROFILE", ""))
    parser.add_argument("--workflow-profile", default="")
    options = parser.parse_known_args(arguments)[0]
    files: list[Path] = []
    for name in (options.profile, options.workflow_profile):  # the second goes over the first, key by key
        if profile := _find_profile(name):
            named = checked.load(profile, PROFILE).get("configfile")
            if named is not None:
                files = [Path(file).absolute() for file in ([named] if isinstance(named, str) else named)]
    others = list(given)
    return [file for file in files if file not in others and not any(is_same(file, other) for other in others)]


def _find_profile(name: str) -> Path | None:
    """The file of the profile of this name, or in this folder; None without one."""
    if not name:
        return None
    places = [Path(name), Path("profiles", name)]
    with contextlib.suppress(RuntimeError):  # a user without a home
        places.append(Path.home() / ".config" / "snakemake" / name)
    return next((place / "config.yaml" for place in places if (place / "config.yaml").is_file()), None)


def read_values(files: Iterable[Path], over: Mapping[str, Any]) -> dict[str, Any]:
    """The values in config files, without the keys that ``over``, the command line, gives too."""
    content: dict[str, Any] = {}
    for file in files:
        content |= checked.load(file, {"type": "object"})
    return {key: value for key, value in content.items() if key not in over}


def check_library(folder: Path) -> None:
    """Raise `StudyError` if the rules are in another clone than this library. folder: of the repository's Snakefile."""
    if not paths.is_same(paths.ROOT, folder):
        raise StudyError(
            f"this Python's study library is {paths.ROOT}'s, but the Snakefile is {folder}'s; "
            "run make setup in the latter and use its .venv (docs/module.md)"
        )


def correct(config: dict[str, Any], workflow: Workflow) -> None:
    """Make Snakemake's ``config`` what the user means; raises `StudyError` for what it must not have."""
    if snakemake_internals.is_main_process(workflow):
        _add_hidden(config, workflow)
    check_deployment(snakemake_internals.deployment_methods(workflow))
    given = snakemake_internals.given(workflow)
    read = () if snakemake_internals.is_module(workflow) else given.read  # else the files are the other workflow's
    config.update(configuration.as_meant(config, read, given.arguments, given.values))
    files = dict.fromkeys(map(checked.shown, read)) or ["config/config.yaml"]
    checked.check(config, "config", " or ".join([*files, "--config"]))
    paths.check_folders({key: config[key] for key in ("data_dir", "results_dir")})


def check_deployment(methods: Iterable[str]) -> None:
    """Raise `StudyError` for ``--sdm conda``. methods: the names of Snakemake's deployment methods in use."""
    if "CONDA" in methods:
        raise StudyError(
            "--sdm conda cannot be used: envs/study.yaml has no Horovod, which must be built against the TensorFlow "
            "and the MPI or NCCL in use; make one environment as docs/machines/README.md says, start the study in it"
        )


def _add_hidden(config: dict[str, Any], workflow: Workflow) -> None:
    """Put back the file in which a profile names its machine, also for the jobs' own Snakemake."""
    given = snakemake_internals.given(workflow)
    hidden = find_hidden_files(sys.argv[1:], os.environ, given.asked)
    config.update(read_values(hidden, given.over))
    snakemake_internals.add_config_files(workflow, hidden)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the user asked for. chooser: who chose the study, such as ``--config chose it``."""

    study: Study
    machine: dict[str, Any]
    chooser: str


def load(config: dict[str, Any], workflow: Workflow) -> Asked:
    """What ``config`` asks for, which gets the machine's study if it names none; the steps get the study's digest.

    Raises `StudyError` if a file of theirs is broken.
    """
    on = earlier_attempts.asked_for(machine.load(config["machine"]), config)
    study, chooser = configuration.study_of(config["machine"])
    if "study" in config:
        by_argument = "study" in snakemake_internals.given(workflow).values
        chooser = "--config chose it" if by_argument else "a configuration file chose it"
    found = expansion.load_study(config.setdefault("study", study), on)
    expansion.note_planned(found, on)
    return Asked(found, on, chooser)
