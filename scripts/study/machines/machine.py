"""A machine's file, checked; valid launchers, batch systems and sensors are those that are registered."""

import copy
import functools
import re
from typing import Any

from study.core import checked, configuration
from study.core.environment import OF_RUNS
from study.core.errors import StudyError
from study.instruments.power.sensors import SENSORS
from study.machines import host_file, launchers
from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.launchers import LAUNCHERS

MCDRAM = re.compile(r"\bmcdram=([^:,\s]+)")


def load(name: str) -> dict[str, Any]:
    """``config/machines/<name>.yaml`` with its ``name``; raises `StudyError` if it violates the schema.

    With ``hosts``, these are {name: slots}, and ``nodes`` and ``ranks_per_node`` follow from them. ``base`` is the
    machine whose keys it inherits; a mistake there is told of the base's file.
    """
    base = _checked_base(name)
    content = configuration.load_named("machines", name, schema()) | ({"base": base} if base else {})
    try:
        _check_queue(content.get("queue", {}))
        _check_memory_mode(content)
        _check_power_model(content.get("power_model"))
        _check_environment(content.get("environment", {}))
        _check_interface(content)
        _check_storage(content)
        _check_idle(content, _own_keys(name))
        return {"name": name, **content, **host_file.settings(content)}
    except StudyError as error:
        raise StudyError(f"config/machines/{name}.yaml: {error}") from None


def _checked_base(name: str) -> str | None:
    """The base that a machine's file names, if its file is there and its values are valid; None without one."""
    known = configuration.files("machines")
    if name not in known:
        return None  # `configuration.load_named` tells the known machines
    base = checked.load(known[name], {"type": "object"}).get("base")
    if not isinstance(base, str) or base not in known:
        return None
    # Only its values: a key that it lacks may be in the file that names it.
    found = schema()
    checked.load(known[base], {"type": "object", "properties": {**found["properties"], "base": {}},
                                                 "additionalProperties": False})  # fmt: skip
    return base


def _check_queue(queue: dict[str, Any]) -> None:
    """Refuse rules for the longest walltime of which two hold for one size of a job, or none does."""
    first = [rule["from_nodes"] for rule in queue.get("longest_minutes", [])]
    if twice := next((nodes for nodes in first if first.count(nodes) > 1), None):
        raise StudyError(f"queue.longest_minutes: from_nodes {twice} is given twice; give one rule for each size")
    smallest = queue.get("smallest_nodes", 1)
    if first and min(first) > smallest:
        raise StudyError(
            f"queue.longest_minutes: no rule holds for jobs of {smallest} to {min(first) - 1} nodes; give one with "
            f"from_nodes: {smallest}, or the queue's smallest_nodes"
        )


def _check_storage(content: dict[str, Any]) -> None:
    """Refuse a name of a shared storage and of one on each node."""
    for name in content.get("storage", {}).keys() & content.get("storage_on_nodes", {}).keys():
        raise StudyError(f"storage_on_nodes: {name} is also under storage; give it another name")


def _check_environment(environment: dict[str, str]) -> None:
    """Refuse variables by which a run would be another than its record says: traced, tuned, with foreign packages."""
    for variable in environment:
        if variable in ("PYTHONPATH", "PYTHONHOME"):
            why = "ranks use this Python's own packages and settings only; leave it out"
            raise StudyError(f"environment: {variable}: {why}")
        if variable.startswith(OF_RUNS):
            raise StudyError(f"environment: {variable}: has no effect: each run sets it itself; leave it out")
        for prefix, key in (("HOROVOD_TIMELINE", "trace"), ("HOROVOD_AUTOTUNE", "autotune")):
            if variable.startswith(prefix):
                raise StudyError(f"environment: {variable}: use the grid key {key}, so that the records say it")


def _own_keys(name: str) -> set[str]:
    """The keys of a machine's own file, without those of its base."""
    return set(checked.load(configuration.files("machines")[name], {"type": "object"}))


def _check_interface(content: dict[str, Any]) -> None:
    """Refuse an interface that nothing uses, or that is of hosts which the batch system chooses."""
    if "interface" not in content or "hosts" in content:
        return
    if "scheduler" not in content:
        raise StudyError("interface: has no effect without hosts and without a scheduler; add hosts, or leave it out")
    if isinstance(content["interface"], dict):
        raise StudyError("interface: the batch system chooses the hosts; give one name, which all of them have")


def _check_idle(content: dict[str, Any], own: set[str]) -> None:
    """Refuse keys of a machine's own file that have no effect beside its other keys. own: those of the file itself."""
    reads = bool(content["power_sensors"] or "power_model" in content)
    idle = {
        "nodes": "hosts" in content and "each host is a node of its own",
        "ranks_per_node": "hosts" in content and "hosts say how many ranks each has",
        "sampling_hz": not reads and "there are no power_sensors and no power_model to sample",
        "stall_limit_s": content.get("stall_limit_s", 0) >= content["time_limit_s"]
        and f"a run is ended before, after time_limit_s: {content['time_limit_s']}",
    }
    for key, why in idle.items():
        if why and key in own:
            raise StudyError(f"{key}: {content[key]:g} has no effect: {why}; leave it out")


def declared(name: str) -> dict[str, Any] | None:
    """As `load`; None for a machine that this folder does not have, such as that of a run from elsewhere."""
    return load(name) if name in configuration.files("machines") else None


def _check_power_model(model: dict[str, Any] | None) -> None:
    if model and model["peak_w"] < model["idle_w"]:
        raise StudyError(f"power_model: peak_w: {model['peak_w']:g} is below idle_w, {model['idle_w']:g}")


def _check_memory_mode(content: dict[str, Any]) -> None:
    """Refuse batch options that request another memory mode than the one that the records will name.

    On Theta the option is ``--attrs mcdram=cache:numa=quad`` (sc18, section 3).
    """
    requested = {found for option in content.get("job_options", []) for found in MCDRAM.findall(option)}
    declared = content.get("memory_mode")
    if requested and requested != {declared}:
        raise StudyError(
            f"memory_mode: {declared or 'is missing'}, but job_options request mcdram={', '.join(sorted(requested))}; "
            "give both the same mode"
        )


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of config/machines/NAME.yaml."""
    found = copy.deepcopy(checked.named_schema("machines"))
    properties = found["properties"]
    properties["launcher"]["enum"] = list(LAUNCHERS)
    properties["scheduler"]["enum"] = list(BATCH_SYSTEMS)
    properties["power_sensors"]["items"]["enum"] = list(SENSORS)
    return found


def trains_on_launching_host(machine: dict[str, Any]) -> bool:
    """Whether all ranks run on the host, or at least the hardware, on which the run is launched."""
    return launchers.of(machine).on_own_hosts and (not machine.get("hosts") or machine.get("laboratory", False))


def submit_program(machine: dict[str, Any]) -> str:
    """The program that starts the machine's runs: its batch system's submit command, else its launcher."""
    return BATCH_SYSTEMS[machine["scheduler"]].submit_program if "scheduler" in machine else machine["launcher"]
