"""Which sensors a machine's file may name, and which of them this host has."""

from study.instruments.power import cray, modelled, nvml, occ, rapl
from study.instruments.power.readings import Unavailable

SENSORS = {"nvml": nvml.find, "rapl": rapl.find, "cray": cray.find, "occ": occ.find}


def find(names, model=None):
    """(devices, reasons): all devices of the sensors ``names``, and {sensor: why it has none}.

    model: the machine's ``power_model``, or None; what it gives is a device too, labelled ``modelled``.
    """
    devices, reasons = [], {}
    for name in names:
        try:
            devices += SENSORS[name]()
        except (Unavailable, OSError) as error:
            reasons[name] = str(error)
    if model:
        devices += modelled.find(model)
    return devices, reasons
