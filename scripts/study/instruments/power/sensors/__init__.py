"""The power sensors: one module each, registered where it is defined; and which of them this host has."""

from collections.abc import Iterable, Mapping

from study.core.registry import import_submodules
from study.instruments.power.readings import SENSORS, Device, Unavailable
from study.instruments.power.sensors import modelled

import_submodules(__name__)


def find(names: Iterable[str], model: Mapping[str, float] | None = None) -> tuple[list[Device], dict[str, str]]:
    """(devices, reasons): all devices of the sensors ``names``, and {sensor: reason why it has none}.

    model: the machine's ``power_model``, or None; its power is a device too, labelled ``modelled``.
    """
    devices: list[Device] = []
    reasons: dict[str, str] = {}
    for name in names:
        try:
            devices += SENSORS[name]()
        except (Unavailable, OSError, ValueError) as error:
            reasons[name] = str(error)
    if model:
        devices += modelled.find(model)
    return devices, reasons
