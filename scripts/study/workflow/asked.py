"""The study and the machine that the user asked for, on the command line and in configuration files, checked."""

import dataclasses
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.core import checked, configuration, paths
from study.core.errors import StudyError
from study.experiment import earlier_attempts, expansion
from study.experiment.study import Study
from study.machines import machine, profile_files
from study.workflow import snakemake_internals
from study.workflow.snakemake_internals import Workflow


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
    hidden = profile_files.hidden(sys.argv[1:], os.environ, given.asked)
    config.update(profile_files.values(hidden, given.over))
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
