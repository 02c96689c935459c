"""The power sensors: one module each, registered where it is defined; and which of them this host has."""

from collections.abc import Iterable, Mapping

from study.core.registry import import_submodules
from study.instruments.power.readings import SENSORS, Device, Unavailable, part_key
from study.instruments.power.sensors import modelled

import_submodules(__name__)


def find(names: Iterable[str], model: Mapping[str, float] | None = None) -> tuple[list[Device], dict[str, str]]:
    """(devices, reasons): all devices of the sensors ``names``, and {sensor: reason why it has none}.

    A sensor of which only a part cannot be read has a reason for that part, by `part_key`. model: the machine's
    ``power_model``, or None; its power is a device too, labelled ``modelled``.
    """
    devices: list[Device] = []
    reasons: dict[str, str] = {}
    for name in names:
        try:
            found = SENSORS[name]()
            devices += found
            for part in getattr(found, "missing", ()):
                reasons[part_key(name, part.kind, part.part)] = part.why
        except Unavailable as error:
            reasons[name] = str(error)
        except Exception as error:  # whatever a driver's bindings raise, the other sensors are read
            reasons[name] = f"{name}: {error}" if isinstance(error, (OSError, ValueError)) else f"{name}: {error!r}"
    if model:
        devices += modelled.find(model)
    return devices, reasons
