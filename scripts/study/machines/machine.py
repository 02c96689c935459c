"""A machine's file and its host file, checked; launchers, batch systems and sensors are those that are registered."""

import copy
import functools
import re
from pathlib import Path
from typing import Any

from study.core import configuration, validation
from study.core.environment import SET_PER_RUN
from study.core.errors import StudyError
from study.instruments.power.sensors import SENSORS
from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.launchers import LAUNCHERS, get_launcher

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
HOST_ENTRY = re.compile(rf"(?P<name>{HOST_NAME.pattern})(?:\s+slots\s*=\s*(?P<slots>[1-9][0-9]{{0,6}}))?")

MCDRAM = re.compile(r"\bmcdram=([^:,\s]+)")


def read_hosts(given: dict[str, int] | str) -> dict[str, int]:
    """{host: slots} in the order in which ranks are placed.

    Args:
        given: that, or the path of a host file with a line ``name slots=N`` for each host, as Open MPI's; without
            ``slots`` it is one. A relative path starts from the folder in which snakemake runs.

    Raises:
        StudyError: the host file cannot be read, a line is not of that form, or a host is listed twice.
    """
    if isinstance(given, dict):
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"hosts: the host file {given} cannot be read in {Path.cwd()}, the folder of this command: {why}"
        ) from None
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        entry = HOST_ENTRY.fullmatch(text)
        if entry is None:
            raise StudyError(
                f"{validation.shorten_path(given)}: line {number}: {text!r} is not of the form: name slots=N"
            )
        if entry["name"] in slots:
            raise StudyError(f"{validation.shorten_path(given)}: line {number}: {entry['name']} is listed twice")
        slots[entry["name"]] = int(entry["slots"] or 1)
    if not slots:
        raise StudyError(f"{validation.shorten_path(given)}: lists no host; give lines of the form: name slots=N")
    return slots


def derive_host_settings(machine: dict[str, Any]) -> dict[str, Any]:
    """``hosts``, ``nodes`` and ``ranks_per_node`` of a machine whose file lists hosts; empty for another machine.

    Raises:
        StudyError: as `read_hosts`, or ``interface`` names a host that is not listed.
    """
    if "hosts" not in machine:
        return {}
    slots = read_hosts(machine["hosts"])
    interface = machine.get("interface")
    unknown = [host for host in interface if host not in slots] if isinstance(interface, dict) else []
    if unknown:
        raise StudyError(
            f"interface: {unknown[0]} is not one of the hosts"
            f"{validation.suggest_nearest(unknown[0], slots)}; known: {', '.join(slots)}"
        )
    return {"hosts": slots, "nodes": len(slots), "ranks_per_node": max(slots.values())}


def load(name: str) -> dict[str, Any]:
    """``config/machines/<name>.yaml`` with its ``name``; raises `StudyError` if it violates the schema.

    With ``hosts``, these are {name: slots}, and ``nodes`` and ``ranks_per_node`` follow from them. ``base`` is the
    machine whose keys it inherits; a mistake there is told of the base's file.
    """
    base = _read_base(name)
    content = configuration.load_named("machines", name, make_schema()) | ({"base": base} if base else {})
    try:
        _check_queue(content.get("queue", {}))
        _check_memory_mode(content)
        _check_power_model(content.get("power_model"))
        _check_environment(content.get("environment", {}))
        _check_interface(content)
        _check_storage(content)
        _check_idle(content, _read_own_keys(name))
        return {"name": name, **content, **derive_host_settings(content)}
    except StudyError as error:
        raise StudyError(f"config/machines/{name}.yaml: {error}") from None


def _read_base(name: str) -> str | None:
    """The base that a machine's file names, if its file is there and its values are valid; None without one."""
    files = configuration.list_files("machines")
    if name not in files:
        return None  # `configuration.load_named` tells the known machines
    base = validation.load_valid_yaml(files[name], {"type": "object"}).get("base")
    if not isinstance(base, str) or base not in files:
        return None
    # Only its values: a key that it lacks may be in the file that names it.
    machine_schema = make_schema()
    properties = {**machine_schema["properties"], "base": {}}
    validation.load_valid_yaml(files[base], {"type": "object", "properties": properties, "additionalProperties": False})
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
    """Refuse variables by which a run would be another than its record says: traced, with foreign packages."""
    for variable in environment:
        if variable in ("PYTHONPATH", "PYTHONHOME"):
            why = "ranks use this Python's own packages and settings only; leave it out"
            raise StudyError(f"environment: {variable}: {why}")
        if variable.startswith(SET_PER_RUN):
            raise StudyError(f"environment: {variable}: has no effect: each run sets it itself; leave it out")
        if variable.startswith("HOROVOD_TIMELINE"):
            raise StudyError(f"environment: {variable}: use the grid key trace, so that the records say it")


def _read_own_keys(name: str) -> set[str]:
    """The keys of a machine's own file, without those of its base."""
    return set(validation.load_valid_yaml(configuration.list_files("machines")[name], {"type": "object"}))


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


def load_if_declared(name: str) -> dict[str, Any] | None:
    """The machine's file (`load`), or None if this folder has none, such as for a run from elsewhere."""
    return load(name) if name in configuration.list_files("machines") else None


def _check_power_model(model: dict[str, Any] | None) -> None:
    if model and model["peak_w"] < model["idle_w"]:
        raise StudyError(f"power_model: peak_w: {model['peak_w']:g} is below idle_w, {model['idle_w']:g}")


def _check_memory_mode(content: dict[str, Any]) -> None:
    """Refuse batch options that request another memory mode than the one that the records will name.

    On Theta the option is ``--attrs mcdram=cache:numa=quad`` (sc18, section 3).
    """
    requested = {mode for option in content.get("job_options", []) for mode in MCDRAM.findall(option)}
    declared = content.get("memory_mode")
    if requested and requested != {declared}:
        raise StudyError(
            f"memory_mode: {declared or 'is missing'}, but job_options request mcdram={', '.join(sorted(requested))}; "
            "give both the same mode"
        )


@functools.cache
def make_schema() -> dict[str, Any]:
    """The schema of config/machines/NAME.yaml."""
    machine_schema = copy.deepcopy(validation.read_schema("machines"))
    properties = machine_schema["properties"]
    properties["launcher"]["enum"] = list(LAUNCHERS)
    properties["scheduler"]["enum"] = list(BATCH_SYSTEMS)
    properties["power_sensors"]["items"]["enum"] = list(SENSORS)
    return machine_schema


def is_on_launching_host(machine: dict[str, Any]) -> bool:
    """Whether all ranks run on the host, or at least the hardware, on which the run is launched."""
    return get_launcher(machine).on_own_hosts and (not machine.get("hosts") or machine.get("laboratory", False))


def find_submit_program(machine: dict[str, Any]) -> str:
    """The program that starts the machine's runs: its batch system's submit command, else its launcher."""
    return BATCH_SYSTEMS[machine["scheduler"]].submit_program if "scheduler" in machine else machine["launcher"]
