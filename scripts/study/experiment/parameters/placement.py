"""Keys of where a rank's threads run, and of how its files lie on a parallel file system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.data.loaders import LOADERS
from study.experiment.parameter import Choice, Count
from study.experiment.parameters.registry import declare

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_binding_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``binding`` on a machine, or None."""
    if run["binding"] != "none" and machine.get("laboratory"):
        return "the laboratory's hosts share one machine's cores, and ranks of two hosts would get the same; use none"
    return None


def _refuse_communication_cores(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``communication_cores``, or None."""
    if run["communication_cores"] and run["binding"] != "core":
        return "needs binding: core, which gives each rank cores of its own"
    return None


def _refuse_communication_cores_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``communication_cores`` on a machine, or None."""
    cores, reserved = machine["cores_per_rank"], run["communication_cores"]
    if reserved >= cores:
        return f"{reserved} of a rank's {cores} cores (cores_per_rank) leave none for TensorFlow; use fewer"
    return None


def _refuse_stripes_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``lustre_stripes`` on a machine, or None."""
    if run["lustre_stripes"] and machine.get("file_system") != "lustre":
        return f"{machine['name']} has no file_system: lustre in its file; use 0"
    return None


def _explain_idle_stripes(run: PlannedRun) -> str | None:
    """The reason why ``lustre_stripes`` has no effect in a run, or None."""
    reads = LOADERS[run["loader"]].reads if run["loader"] in LOADERS else None
    if run.dataset.definition["source"] == "path" and reads == "raw":
        return f"loader: {run['loader']} reads your own files from where they are"
    return None


declare(
    "binding",
    Choice(("none", "core", "numa")),
    "Cores to which each rank binds its threads. none: as set by the launcher. core: cores_per_rank cores of its "
    "own. numa: all cores of one NUMA node; the ranks of a host are divided among its NUMA nodes in order.",
    default="none",
    default_in_papers=True,
    refuse_on=_refuse_binding_on,
)

declare(
    "communication_cores",
    Count(0, 1024),
    "Cores of each rank that only Horovod's threads use; TensorFlow uses the others. Needs binding: core.",
    default=0,
    unit="cores",
    default_in_papers=True,
    refuse=_refuse_communication_cores,
    refuse_on=_refuse_communication_cores_on,
)

declare(
    "lustre_stripes",
    Count(0, 2000),
    "Number of Lustre targets over which the files that ranks read are striped: copies in a folder `stripes-N` "
    "(lfs setstripe). 0: the files as they are.",
    default=0,
    unit="stripes",
    default_in_papers=True,
    label="Lustre stripes",
    refuse_on=_refuse_stripes_on,
    idle=_explain_idle_stripes,
)
