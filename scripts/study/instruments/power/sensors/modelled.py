"""Not a sensor: a node's power modelled from CPU utilisation, for machines without sensors. Off by default.

Idle and peak watts are the user's (``power_model`` in the machine's file). Its values are labelled ``modelled`` in
every table and figure and are never mixed with measured ones.
"""

from collections.abc import Callable, Mapping

from study.instruments.power.readings import MODELLED, Device, Reading


def find(model: Mapping[str, float], utilization: Callable[[], float] | None = None) -> list[Device]:
    """One `Device`. model: ``idle_w`` and ``peak_w``; utilization: gives CPU utilisation (%) since its last call."""
    if utilization is None:
        import psutil  # here, since every start of Snakemake imports the sensors

        utilization = psutil.cpu_percent
    utilization()  # psutil's first answer says nothing

    def read() -> Reading:
        percent = utilization()
        power = model["idle_w"] + (model["peak_w"] - model["idle_w"]) * percent / 100
        return Reading(power_w=power, utilization_pct=percent)

    return [Device(MODELLED, "node", MODELLED, read)]
