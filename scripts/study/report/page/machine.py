"""The machine of a study, as its runs recorded it: hosts, software versions, sensors."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import validation
from study.machines import launchers
from study.records.record import read_provenance

COMPONENTS = "; "  # between the reasons of several sensors in ``power_reason``


LOADING_SCHEMA = {"type": "object", "required": ["provenance"], "properties": {"provenance": {"type": "object"}}}
# What the report shows of a provenance, besides what all readers of one need.
PROVENANCE_SCHEMA = {
    "required": ["host", "gpus", "git", "packages", "python"],
    "properties": {
        "host": {"required": ["name", "cpu", "cores", "cores_allowed", "memory_mb", "system"]},
        "hosts": {"items": {"required": ["name", "cpu", "cores", "cores_allowed", "memory_mb"]}},
        "python": {"type": "string"},
    },
}


@dataclass(frozen=True)
class Sensor:
    """Source of the power of some runs, ``measured``, ``modelled`` or empty, and reasons why sensors are missing."""

    source: str
    reasons: list[str]
    runs: int


@dataclass(frozen=True)
class Machine:
    """The machine's section. hosts: a line each. versions: {name: versions}. older_code: runs of older code."""

    name: str
    description: str
    hosts: list[str]
    versions: dict[str, list[str]]
    sensors: list[Sensor]
    older_code: int

    @property
    def line(self) -> str:
        """The machine in one line."""
        return f"{self.name}: {self.description}"


def describe_machine(machine: dict[str, Any], runs: pd.DataFrame, loading: pd.DataFrame, folder: Path) -> Machine:
    """Describe the machine. machine: its YAML with its name. folder: its results folder."""
    provenances = _load_provenances(runs, loading, folder)
    no_ranks = "; launches the runs, and has no ranks" if launchers.get_launcher(machine).from_a_service_node else ""
    hosts = [f"{_describe_host(each)}{no_ranks}" for each in provenances]
    hosts += [_describe_other_host(host) for each in provenances for host in each.get("hosts", [])]
    versions = _collect_versions(provenances) | _collect_communication_versions(runs)
    return Machine(
        machine["name"], machine["description"], list(dict.fromkeys(hosts)), versions, _summarize_sensors(runs),
        int((~_read_flags(runs, "code_is_current")).sum()),
    )  # fmt: skip


def _read_flags(frame: pd.DataFrame, name: str) -> pd.Series:
    """Read a column of flags; missing cells are True, a missing column is empty."""
    return frame[name].fillna(True).astype(bool) if name in frame else pd.Series(dtype=bool)


def _load_provenances(runs: pd.DataFrame, loading: pd.DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Load the provenance of each run, or of each loading measurement if there are no runs."""
    folders = [(folder / record).parent for record in runs.get("record", [])]
    if folders:
        provenances = {f"{each}/provenance.json": read_provenance(each) for each in folders}
    else:
        loads = [folder / record for record in dict.fromkeys(loading.get("record", []))]
        provenances = {str(file): validation.load_valid_json(file, LOADING_SCHEMA)["provenance"] for file in loads}
    for file, facts in provenances.items():
        validation.validate(facts, {**validation.read_schema("provenance"), "required": []}, file)
        validation.validate(facts, PROVENANCE_SCHEMA, file)
    return list(provenances.values())


def _describe_host(provenance: dict[str, Any]) -> str:
    """Describe the launching host in a line, with its GPUs and system."""
    host, gpus = provenance["host"], provenance["gpus"]
    names = ", ".join(gpu["name"] for gpu in gpus["found"]) or f"no GPU seen ({gpus['reason']})"
    return f"{_describe_other_host(host)}; {names}; {host['system']}"


def _describe_other_host(host: dict[str, Any]) -> str:
    """Describe one of several hosts of a run in a line: CPU, cores, memory."""
    quota, most_mb = host.get("cpu_quota_cores"), host.get("memory_limit_mb")
    return (
        f"{host['name']}: {host['cpu']}, {host['cores_allowed']} of {host['cores']} cores, "
        + (f"the CPU time of {quota:g} cores by quota, " if quota else "")
        + f"{host['memory_mb'] / 1000:.0f} GB memory"
        + (f", of which {most_mb / 1000:.3g} GB by limit" if most_mb else "")
    )


def _collect_versions(provenances: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Collect {package: versions} and the commits that runs were made with."""
    versions_by_name: dict[str, dict[str, None]] = {}
    for each in provenances:
        git = each["git"]
        commit = (git["commit"] or "unknown") + (" with changes" if git["dirty"] else "")
        versions = {"Python": each["python"], **each["packages"],
              "commit of this repository": commit + (f" ({git['reason']})" if git.get("reason") else "")}  # fmt: skip
        for name, version in versions.items():
            versions_by_name.setdefault(name, {})[version or "not installed"] = None
    return {name: list(versions) for name, versions in versions_by_name.items()}


def _collect_communication_versions(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Collect the communication libraries of the runs with their versions, such as Horovod's."""
    libraries = runs["communication_libraries"].dropna().unique() if "communication_libraries" in runs else ()
    return {"communication": [str(each) for each in libraries]} if len(libraries) else {}


def _summarize_sensors(runs: pd.DataFrame) -> list[Sensor]:
    """Count the runs by source of power and reasons for missing sensors."""
    if not {"power_source", "power_reason"} <= {*runs.columns}:
        return []
    pairs = runs[["power_source", "power_reason"]].astype(object)
    pairs = pairs.where(pairs.notna(), "")
    counted = Counter(pairs.itertuples(index=False, name=None))
    return [Sensor(source, [part for part in reason.split(COMPONENTS) if part], count)
            for (source, reason), count in counted.items()]  # fmt: skip
