"""Not a sensor: the node's power guessed from CPU utilisation, for machines without any. Off unless asked for.

Idle and peak watts are the user's own (``power_model`` in the machine's file). Whatever comes of it is labelled
``modelled`` in every table and figure and is never mixed with what was measured.
"""

import psutil

from study.instruments.power.readings import MODELLED, Device, Reading


def find(model, utilization=psutil.cpu_percent):
    """One `Device`. model: ``idle_w`` and ``peak_w``; utilization: gives CPU utilisation (%) since its last call."""
    utilization()  # psutil's first answer says nothing

    def read():
        percent = utilization()
        power = model["idle_w"] + (model["peak_w"] - model["idle_w"]) * percent / 100
        return Reading(power_w=power, utilization_pct=percent)

    return [Device(MODELLED, "node", MODELLED, read)]
