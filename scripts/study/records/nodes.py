"""Where a run's ranks were: their hosts, as far as they are known, and the nodes of which the study saw nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from study.experiment.definition import RunDefinition
from study.machines import launchers
from study.workloads import command


def unseen_nodes(run: RunDefinition) -> str | None:
    """Why hosts, energy, processor time and memory of a run are not those of all its nodes; None if they are.

    Of a job that starts its ranks on other nodes itself, the node of its first process is measured.
    """
    if not command.is_command(run.benchmark) or run.benchmark["starts"] != command.JOB:
        return None
    if launchers.get_launcher(run.machine).from_a_service_node:
        return "starts: job: the node that is measured is the job's service node, without ranks; use starts: node"
    if run.derived.nodes > 1:
        return f"starts: job: one of the {run.derived.nodes} nodes is measured, the launching one; use starts: node"
    return None


def hosts_of_ranks(
    run: RunDefinition, provenance: Mapping[str, Any], edges: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The record's ``rank_hosts``, and ``hosts_reason`` if these are not known.

    Hosts have their own names for themselves, in the order of the ranks. A process tells its host with its phases. The
    launching host is another one where a batch system's launcher chooses, such as on a machine with service nodes.
    """
    listed = [host["hostname"] for host in provenance.get("hosts", [])]
    unseen = unseen_nodes(run)
    hosts_of_edges = [] if unseen else [edge["host"] for edge in sorted(edges, key=lambda edge: edge["rank"])]
    own = [provenance["host"]["name"]] if launchers.get_launcher(run.machine).on_own_hosts else []
    if hosts := listed or hosts_of_edges or own:
        return {"rank_hosts": list(dict.fromkeys(hosts)), "hosts_reason": None}
    none = f"no process had started when the run ended, and {run.machine['launcher']} chose the hosts"
    return {"rank_hosts": None, "hosts_reason": unseen or none}


def host_columns(record: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns ``hosts`` and ``hosts_reason`` of a record."""
    return {"hosts": " ".join(record["rank_hosts"] or ()) or None, "hosts_reason": record["hosts_reason"]}
