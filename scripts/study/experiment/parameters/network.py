"""Keys of the network between the hosts."""

from study.experiment.parameter import Count
from study.experiment.parameters.registry import declare, explain_idle_communication

declare(
    "link_mbit_per_s",
    Count(0),
    "Rate of each host's network link, in both directions, on the machine `lab`; 0 for no limit.",
    default=0,
    unit="Mbit/s",
    label="link rate (Mbit/s)",
    idle=explain_idle_communication,
)
