"""Limits of power and clock rate that a run can ask for: one module each, registered where it is defined."""

from collections.abc import Mapping
from typing import Any

from study.core.registry import import_submodules
from study.machines.limits.base import LIMITS, Place, Refused

import_submodules(__name__)


def asked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """{limit: value} of those that a run asks for; a run that was made before a limit existed asks for none."""
    return {name: parameters[name] for name, each in LIMITS.items() if parameters.get(name, each.off) != each.off}


def problem(name: str, value: Any, place: Place) -> str | None:
    """Why this host cannot set a limit, in words, or None; nothing is set.

    Whether the driver of a GPU permits it shows only when it is set.
    """
    try:
        limit = LIMITS[name]
        for device in limit.devices(place):
            limit.check(place, device, value)
    except Refused as refused:
        return str(refused)
    return None
