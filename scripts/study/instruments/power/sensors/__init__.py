"""The power sensors: one module each, registered where it is defined; and which of them this host has."""

from collections.abc import Callable, Iterable, Mapping

from study.core.registry import import_submodules
from study.instruments.power.readings import MODELLED, SENSORS, Device, Reading, Unavailable, make_part_key

import_submodules(__name__)


def find_devices(names: Iterable[str], model: Mapping[str, float] | None = None) -> tuple[list[Device], dict[str, str]]:
    """(devices, reasons): all devices of the sensors ``names``, and {sensor: reason why it has none}.

    A sensor of which only a part cannot be read has a reason for that part, by `make_part_key`. model: the machine's
    ``power_model``, or None; its power is a device too, labelled ``modelled``.
    """
    devices: list[Device] = []
    reasons: dict[str, str] = {}
    for name in names:
        try:
            sensor_devices = SENSORS[name]()
            devices += sensor_devices
            for part in getattr(sensor_devices, "missing", ()):
                reasons[make_part_key(name, part.kind, part.part)] = part.why
        except Unavailable as error:
            reasons[name] = str(error)
        except Exception as error:  # whatever a driver's bindings raise, the other sensors are read
            reasons[name] = f"{name}: {error}" if isinstance(error, (OSError, ValueError)) else f"{name}: {error!r}"
    if model:
        devices += find_modelled(model)
    return devices, reasons


def find_modelled(model: Mapping[str, float], utilization: Callable[[], float] | None = None) -> list[Device]:
    """A node's power modelled from CPU utilisation, as one `Device`; for machines without sensors, off by default.

    Its values are labelled ``modelled`` in every table and figure and are never mixed with measured ones.

    model: the user's ``idle_w`` and ``peak_w``. utilization: gives CPU utilisation (%) since its last call.
    """
    if utilization is None:
        import psutil  # here, since every start of Snakemake imports the sensors

        utilization = psutil.cpu_percent
    utilization()  # psutil's first answer says nothing

    def read() -> Reading:
        percent = utilization()
        power = model["idle_w"] + (model["peak_w"] - model["idle_w"]) * percent / 100
        return Reading(power_w=power, utilization_pct=percent)

    return [Device(MODELLED, "node", MODELLED, read)]
