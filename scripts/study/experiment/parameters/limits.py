"""Keys of the power and the clock rate that processors may have; the launch sets them and puts back what was there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.experiment.parameter import Choice, Count, Number, Parameter, RefusalOn
from study.experiment.parameters.registry import at_default, declare
from study.machines import launchers
from study.machines.limits import Place, problem
from study.machines.limits.governor import UNCHANGED

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

MOST_W, MOST_MHZ = 10_000, 10_000
RESTORED = "Set on each host before the run, read back, and restored afterwards; needs permission on the host."


def _on(name: str) -> RefusalOn:
    """Why a machine cannot have the limit: asked of this host where the ranks run here."""

    def refuse(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
        if at_default(run, name):
            return None
        launcher = launchers.of(dict(machine))
        if not launcher.on_own_hosts:
            if launcher.from_a_service_node or launchers.nodes(run.gpus, dict(machine)) > 1:
                return (
                    f"with {machine['launcher']}, limits can be set only in jobs of one node whose script runs there; "
                    "ask the batch system for them, as Slurm's --gpu-freq and --cpu-freq, or leave the key out"
                )
            return None  # the node is not this host; it is asked before the run
        return None if machine.get("hosts") else problem(name, run[name], Place())

    return refuse


declare(
    Parameter(
        "gpu_power_limit_w",
        Number(0, MOST_W),
        f"Power limit of each GPU of the ranks; 0: unchanged. {RESTORED}",
        default=0,
        unit="W",
        default_in_papers=True,
        label="GPU power limit",
        refuse_on=_on("gpu_power_limit_w"),
    )
)

declare(
    Parameter(
        "gpu_clock_mhz",
        Count(0, MOST_MHZ),
        f"Clock rate to which each GPU of the ranks is locked; 0: not locked. {RESTORED}",
        default=0,
        unit="MHz",
        default_in_papers=True,
        label="GPU clock rate",
        refuse_on=_on("gpu_clock_mhz"),
    )
)

declare(
    Parameter(
        "cpu_power_limit_w",
        Number(0, MOST_W),
        f"Long-term power limit of each processor package (RAPL); 0: unchanged. {RESTORED}",
        default=0,
        unit="W",
        default_in_papers=True,
        label="CPU power limit",
        refuse_on=_on("cpu_power_limit_w"),
    )
)

declare(
    Parameter(
        "cpu_governor",
        Choice((UNCHANGED, "performance", "powersave", "schedutil", "ondemand", "conservative")),
        f"Governor of the CPUs' clock rate. {UNCHANGED}: as before the run. {RESTORED}",
        default=UNCHANGED,
        default_in_papers=True,
        label="CPU governor",
        refuse_on=_on("cpu_governor"),
    )
)
