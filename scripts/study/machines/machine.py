"""A machine's file, checked; valid launchers, batch systems and sensors are those that are registered."""

import copy
import functools
from typing import Any

from study.core import configuration
from study.core.errors import StudyError
from study.instruments.power.sensors import SENSORS
from study.machines import host_file
from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.launchers import LAUNCHERS

SLURM = "slurm"  # through Snakemake's own plugin


def load(name: str) -> dict[str, Any]:
    """``config/machines/<name>.yaml`` with its ``name``; raises `StudyError` if it violates the schema.

    With ``hosts``, these are {name: slots}, and ``nodes`` and ``ranks_per_node`` follow from them.
    """
    content = configuration.load_named("machines", name, schema())
    try:
        return {"name": name, **content, **host_file.settings(content)}
    except StudyError as error:
        raise StudyError(f"config/machines/{name}.yaml: {error}") from None


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of config/machines/NAME.yaml."""
    found = copy.deepcopy(configuration.named_schema("machines"))
    properties = found["properties"]
    properties["launcher"]["enum"] = list(LAUNCHERS)
    properties["scheduler"]["enum"] = [*BATCH_SYSTEMS, SLURM]
    properties["power_sensors"]["items"]["enum"] = list(SENSORS)
    return found


def submit_program(machine: dict[str, Any]) -> str:
    """The program that starts the machine's runs: its batch system's submit command, else its launcher."""
    if "scheduler" not in machine:
        return machine["launcher"]
    return "sbatch" if machine["scheduler"] == SLURM else BATCH_SYSTEMS[machine["scheduler"]].submit_program
