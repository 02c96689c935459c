"""Keys of where a rank's threads run, and of how its files lie on a parallel file system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.data.loaders import LOADERS
from study.experiment.parameter import Choice, Count, Parameter
from study.experiment.parameters.registry import declare

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _binding_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    if run["binding"] != "none" and machine.get("laboratory"):
        return "the laboratory's hosts share one machine's cores, and ranks of two hosts would get the same; use none"
    return None


def _communication_cores(run: PlannedRun) -> str | None:
    if run["communication_cores"] and run["binding"] != "core":
        return "needs binding: core, which gives each rank cores of its own"
    return None


def _communication_cores_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    cores, left = machine["cores_per_rank"], run["communication_cores"]
    if left >= cores:
        return f"{left} of a rank's {cores} cores (cores_per_rank) leave none for TensorFlow; use fewer"
    return None


def _stripes_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    if run["lustre_stripes"] and machine.get("file_system") != "lustre":
        return f"{machine['name']} has no file_system: lustre in its file; use 0"
    return None


def _own_files(run: PlannedRun) -> str | None:
    reads = LOADERS[run["loader"]].reads if run["loader"] in LOADERS else None
    if run.dataset.definition["source"] == "path" and reads == "raw":
        return f"loader: {run['loader']} reads your own files from where they are"
    return None


declare(
    Parameter(
        "binding",
        Choice(("none", "core", "numa")),
        "Cores to which each rank binds its threads. none: as set by the launcher. core: cores_per_rank cores of its "
        "own. numa: all cores of one NUMA node; the ranks of a host are divided among its NUMA nodes in order.",
        default="none",
        default_in_papers=True,
        refuse_on=_binding_on,
    )
)

declare(
    Parameter(
        "communication_cores",
        Count(0, 1024),
        "Cores of each rank that only Horovod's threads use; TensorFlow uses the others. Needs binding: core.",
        default=0,
        unit="cores",
        default_in_papers=True,
        refuse=_communication_cores,
        refuse_on=_communication_cores_on,
    )
)

declare(
    Parameter(
        "lustre_stripes",
        Count(0, 2000),
        "Number of Lustre targets over which the files that ranks read are striped: copies in a folder `stripes-N` "
        "(lfs setstripe). 0: the files as they are.",
        default=0,
        unit="stripes",
        default_in_papers=True,
        label="Lustre stripes",
        refuse_on=_stripes_on,
        idle=_own_files,
    )
)
