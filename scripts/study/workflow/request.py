"""The user's request: the study and the machine named on the command line and in configuration files, checked.

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

from study.core import configuration, paths, validation
from study.core.errors import StudyError
from study.core.paths import is_same
from study.experiment import earlier_attempts, expansion
from study.experiment.study import Study
from study.machines import machine
from study.workflow import snakemake_internals
from study.workflow.snakemake_internals import Workflow

PROFILE_SCHEMA = {
    "type": "object",
    "properties": {"configfile": {"type": ["string", "array"], "items": {"type": "string", "minLength": 1}}},
}


def find_hidden_config_files(
    arguments: Sequence[str], variables: Mapping[str, str], used_files: Iterable[Path]
) -> list[Path]:
    """Find config files of the profile in use that Snakemake does not use.

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
            config_files = validation.load_valid_yaml(profile, PROFILE_SCHEMA).get("configfile")
            if config_files is not None:
                files = [
                    Path(file).absolute()
                    for file in ([config_files] if isinstance(config_files, str) else config_files)
                ]
    others = list(used_files)
    return [file for file in files if file not in others and not any(is_same(file, other) for other in others)]


def _find_profile(name: str) -> Path | None:
    """Find the file of the profile of this name, or in this folder; None without one."""
    if not name:
        return None
    places = [Path(name), Path("profiles", name)]
    with contextlib.suppress(RuntimeError):  # a user without a home
        places.append(Path.home() / ".config" / "snakemake" / name)
    return next((place / "config.yaml" for place in places if (place / "config.yaml").is_file()), None)


def read_config_values(files: Iterable[Path], over: Mapping[str, Any]) -> dict[str, Any]:
    """Read the values in config files, without the keys that ``over``, the command line, gives too."""
    content: dict[str, Any] = {}
    for file in files:
        content |= validation.load_valid_yaml(file, {"type": "object"})
    return {key: value for key, value in content.items() if key not in over}


def check_library(folder: Path) -> None:
    """Raise `StudyError` if the rules are in another clone than this library. folder: of the repository's Snakefile."""
    if not paths.is_same(paths.ROOT, folder):
        raise StudyError(
            f"this Python's study library is {paths.ROOT}'s, but the Snakefile is {folder}'s; "
            "run make setup in the latter and use its .venv (docs/module.md)"
        )


def correct_config(config: dict[str, Any], workflow: Workflow) -> None:
    """Correct the values in Snakemake's ``config`` to what the user wrote; raises `StudyError` for invalid ones."""
    if snakemake_internals.is_main_process(workflow):
        _add_hidden_files(config, workflow)
    check_deployment(snakemake_internals.list_deployment_methods(workflow))
    config_sources = snakemake_internals.read_config_sources(workflow)
    read_files = (
        () if snakemake_internals.is_module(workflow) else config_sources.read
    )  # else the files are the other workflow's
    config.update(
        configuration.restore_typed_values(config, read_files, config_sources.arguments, config_sources.values)
    )
    files = dict.fromkeys(map(validation.shorten_path, read_files)) or ["config/config.yaml"]
    validation.validate(config, "config", " or ".join([*files, "--config"]))
    paths.check_folders({key: config[key] for key in ("data_dir", "results_dir")})


def check_deployment(methods: Iterable[str]) -> None:
    """Raise `StudyError` for ``--sdm conda``. methods: the names of Snakemake's deployment methods in use."""
    if "CONDA" in methods:
        raise StudyError(
            "--sdm conda cannot be used: envs/study.yaml has no Horovod, which must be built against the TensorFlow "
            "and the MPI or NCCL in use; make one environment as docs/machines/README.md says, start the study in it"
        )


def _add_hidden_files(config: dict[str, Any], workflow: Workflow) -> None:
    """Add the config file of a profile that Snakemake dropped, also for the jobs' own Snakemake."""
    config_sources = snakemake_internals.read_config_sources(workflow)
    hidden_files = find_hidden_config_files(sys.argv[1:], os.environ, config_sources.asked)
    config.update(read_config_values(hidden_files, config_sources.over))
    snakemake_internals.add_config_files(workflow, hidden_files)


@dataclasses.dataclass(frozen=True)
class Request:
    """The requested study and machine. chooser: who chose the study, such as ``--config chose it``."""

    study: Study
    machine: dict[str, Any]
    chooser: str


def load_request(config: dict[str, Any], workflow: Workflow) -> Request:
    """Load the study and machine that ``config`` names; a missing study becomes the machine's, also in ``config``.

    Raises `StudyError` if a file of theirs is broken.
    """
    loaded_machine = earlier_attempts.override_further_attempts(machine.load(config["machine"]), config)
    study, chooser = configuration.choose_default_study(config["machine"])
    if "study" in config:
        by_argument = "study" in snakemake_internals.read_config_sources(workflow).values
        chooser = "--config chose it" if by_argument else "a configuration file chose it"
    loaded_study = expansion.load_study(config.setdefault("study", study), loaded_machine)
    expansion.note_planned_study(loaded_study, loaded_machine)
    return Request(loaded_study, loaded_machine, chooser)
