"""The machine of a study, as its runs saw it: hosts, software versions, sensors."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import checked
from study.machines import launchers
from study.records.record import read_provenance

COMPONENTS = "; "  # between the reasons of several sensors in ``power_reason``


LOADED = {"type": "object", "required": ["provenance"], "properties": {"provenance": {"type": "object"}}}
# What the report shows of a provenance, besides what all readers of one need.
SHOWN = {
    "required": ["host", "gpus", "git", "packages", "python"],
    "properties": {
        "host": {"required": ["name", "cpu", "cores", "cores_allowed", "memory_mb", "system"]},
        "hosts": {"items": {"required": ["name", "cpu", "cores", "cores_allowed", "memory_mb"]}},
        "python": {"type": "string"},
    },
}


@dataclass(frozen=True)
class Sensor:
    """Whether power of some runs was ``measured`` or ``modelled``, empty if neither, and what is missing."""

    source: str
    reasons: list[str]
    runs: int


@dataclass(frozen=True)
class Machine:
    """hosts: one line each. versions: {name: versions seen}. code: (what, how many runs)."""

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


def of_study(machine: dict[str, Any], runs: pd.DataFrame, loading: pd.DataFrame, folder: Path) -> Machine:
    """The `Machine`. machine: its YAML with its name. runs, loading: the tidy tables. folder: its results folder."""
    found = _provenances(runs, loading, folder)
    no_ranks = "; launches the runs, and has no ranks" if launchers.get_launcher(machine).from_a_service_node else ""
    hosts = [f"{_host(each)}{no_ranks}" for each in found]
    hosts += [_other(host) for each in found for host in each.get("hosts", [])]
    versions = _versions(found) | _of_communication(runs)
    return Machine(
        machine["name"], machine["description"], list(dict.fromkeys(hosts)), versions, _sensors(runs),
        int((~_flags(runs, "code_is_current")).sum()),
    )  # fmt: skip


def _flags(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name].fillna(True).astype(bool) if name in frame else pd.Series(dtype=bool)


def _provenances(runs: pd.DataFrame, loading: pd.DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Of each run; of a study without runs those of its loading measurements."""
    folders = [(folder / record).parent for record in runs.get("record", [])]
    if folders:
        found = {f"{each}/provenance.json": read_provenance(each) for each in folders}
    else:
        loads = [folder / record for record in dict.fromkeys(loading.get("record", []))]
        found = {str(file): checked.load_json(file, LOADED)["provenance"] for file in loads}
    for file, facts in found.items():
        checked.check(facts, {**checked.named_schema("provenance"), "required": []}, file)
        checked.check(facts, SHOWN, file)
    return list(found.values())


def _host(provenance: dict[str, Any]) -> str:
    host, gpus = provenance["host"], provenance["gpus"]
    names = ", ".join(gpu["name"] for gpu in gpus["found"]) or f"no GPU seen ({gpus['reason']})"
    return f"{_other(host)}; {names}; {host['system']}"


def _other(host: dict[str, Any]) -> str:
    """One of several hosts on which a run had ranks."""
    quota, most_mb = host.get("cpu_quota_cores"), host.get("memory_limit_mb")
    return (
        f"{host['name']}: {host['cpu']}, {host['cores_allowed']} of {host['cores']} cores, "
        + (f"the CPU time of {quota:g} cores by quota, " if quota else "")
        + f"{host['memory_mb'] / 1000:.0f} GB memory"
        + (f", of which {most_mb / 1000:.3g} GB by limit" if most_mb else "")
    )


def _versions(found: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Each version of each package, and the commits, that runs were made with."""
    seen: dict[str, dict[str, None]] = {}
    for each in found:
        git = each["git"]
        commit = (git["commit"] or "unknown") + (" with changes" if git["dirty"] else "")
        of = {"Python": each["python"], **each["packages"],
              "commit of this repository": commit + (f" ({git['reason']})" if git.get("reason") else "")}  # fmt: skip
        for name, version in of.items():
            seen.setdefault(name, {})[version or "not installed"] = None
    return {name: list(versions) for name, versions in seen.items()}


def _of_communication(runs: pd.DataFrame) -> dict[str, list[str]]:
    """What carried the gradients: Horovod's version, for example, which is not of the framework's packages."""
    told = runs["communication_libraries"].dropna().unique() if "communication_libraries" in runs else ()
    return {"communication": [str(each) for each in told]} if len(told) else {}


def _sensors(runs: pd.DataFrame) -> list[Sensor]:
    """How power is known, and what was missing, with the number of runs."""
    if not {"power_source", "power_reason"} <= {*runs.columns}:
        return []
    pairs = runs[["power_source", "power_reason"]].astype(object)
    pairs = pairs.where(pairs.notna(), "")
    counted = Counter(pairs.itertuples(index=False, name=None))
    return [Sensor(source, [part for part in reason.split(COMPONENTS) if part], count)
            for (source, reason), count in counted.items()]  # fmt: skip
