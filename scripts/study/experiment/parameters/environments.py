"""The key that names the environment of Python in which the ranks run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.experiment.parameter import Name, Parameter
from study.experiment.parameters.registry import declare
from study.machines import environments
from study.machines.process_roles import HOROVOD
from study.workloads import command

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _environment(run: PlannedRun) -> str | None:
    if run["environment"] == environments.OWN or run.kind != command.KIND:
        return None
    return f"{run.dataset.benchmark} is a command; its benchmark's file names its environment"


def _environment_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    if run["environment"] == environments.OWN or run.kind == command.KIND:
        return None
    return environments.refusal(run["environment"], machine, run["framework"], run["strategy"] == HOROVOD)


declare(
    Parameter(
        "environment",
        Name(),
        "The Python environment in which the ranks run, to compare versions of libraries: a name under `environments` "
        "in the machine's file; `own`: that of the study.",
        default=environments.OWN,
        default_in_papers=True,
        refuse=_environment,
        refuse_on=_environment_on,
    )
)
