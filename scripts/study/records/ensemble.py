"""The section ``ensemble`` of a record: what an ensemble did and what it cost, over all its members."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from study.core.lazy import pandas as pd
from study.ensembles import results
from study.instruments import phases

MEMBER_FAILED = "member_failed"  # kind of failure of a run that lost a member, in what compares runs


_Span = tuple[int, ...]  # begin and end


def with_lost_as_failed(runs: pd.DataFrame) -> pd.DataFrame:
    """The tidy table of runs, in which a run that lost a member counts as failed.

    The other members had more of the machine to themselves, so its times and its energy are those of no full ensemble.
    """
    if "members_failed" not in runs:
        return runs
    lost = runs["status"].eq("ok") & runs["members_failed"].astype(float).gt(0)
    if not lost.any():
        return runs
    kinds = runs["failure_kind"].astype(object).mask(lost, MEMBER_FAILED)
    return runs.assign(status=runs["status"].mask(lost, "failed"), failure_kind=kinds)


def section(
    metrics: Mapping[str, Any], hosts: Iterable[Mapping[str, Any]], edges: Iterable[dict[str, Any]]
) -> dict[str, Any] | None:
    """The section, from a run's ``metrics.json``; None for a run that was no ensemble.

    hosts: as in ``provenance.json``, with the offsets of their clocks. edges: of the run's phases.
    """
    ranks = [rank for rank in metrics["ranks"] if "member" in rank]
    if not ranks:
        return None
    members, lost = [rank["member"] for rank in ranks], metrics.get("members_lost", [])
    of_members = results.by_member(ranks)

    def reduced(name: str, reduce: Callable[[list[Any]], Any]) -> Any:
        """``reduce`` of the ranks' values; None if one has none."""
        values = [member.get(name) for member in members]
        return None if None in values else reduce(values)

    on_limited, elsewhere = reduced("process_cpu_s", sum), reduced("other_cores_cpu_s", sum)
    spans = _spans(ranks, hosts, list(edges))
    return {
        "members_failed": sum(any(rank["member"]["failure"] for rank in each) for each in of_members) + len(lost),
        "makespan_s": _makespan_s(list(spans.values())),
        "samples_preprocessed": reduced("samples_preprocessed", sum),
        "shared_mb": reduced("received_bytes", sum) / 1e6,
        "ranks_cpu_s": reduced("cpu_s", sum),
        "preprocessing_cpu_s": reduced("preprocessing_cpu_s", sum),
        "communication_cpu_s": reduced("communication_cpu_s", sum),
        "input_stall_s": reduced("input_stall_s", statistics.mean),
        "queue_fill": reduced("queue_fill", statistics.mean),
        "peak_samples_per_s": reduced("peak_samples_per_s", statistics.mean),
        "compute_samples_per_s": reduced("compute_samples_per_s", statistics.mean),
        "data_memory_mb": reduced("memory_bytes", sum) / 1e6,
        "other_cores_cpu_share": elsewhere / on_limited if on_limited else None,
        **metrics.get("combined", {}),  # see `study.ensembles.votes`
        "members": [_member(each, spans[each[0]["rank"]]) for each in of_members],
        "lost": lost,
    }


def _spans(
    ranks: Sequence[Mapping[str, Any]], hosts: Iterable[Mapping[str, Any]], edges: list[dict[str, Any]]
) -> dict[int, _Span | None]:
    """{rank: when its member trained, in ns that are common to all hosts; None if a clock was set}; as `section`.

    By the monotonic clock of the rank's host. Older runs have wall times only, which are nothing once a clock was set.
    """
    zeros, ahead_ns, was_set = phases.zeros_ns(edges), phases.clock_offsets_ns(hosts), phases.set_clock(edges)
    found: dict[int, _Span | None] = {}
    for rank in ranks:
        member, host = rank["member"], rank["host"]
        if host in zeros and "begun_monotonic_ns" in member:
            found[rank["rank"]] = tuple(member[f"{end}_monotonic_ns"] + zeros[host] for end in ("begun", "ended"))
        else:
            wall = tuple(member[f"{end}_wall_ns"] - ahead_ns.get(host, 0) for end in ("begun", "ended"))
            found[rank["rank"]] = None if was_set else wall
    return found


def _makespan_s(spans: Sequence[_Span | None]) -> float | None:
    """From the first begin to the last end."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    return (max(ended for _, ended in known) - min(begun for begun, _ in known)) / 1e9


def _member(ranks: Sequence[Mapping[str, Any]], span: _Span | None) -> dict[str, Any]:
    """What the record has of one member; its losses and metrics are in ``members.csv``.

    ranks: its own. span: of the first one, see `_spans`.
    """
    rank, member = ranks[0], results.of_member(ranks)
    return {
        "member": member["number"],
        "rank": rank["rank"],
        **{name: member[name] for name in ("seed", "learning_rate", "batch_size", "epochs", "failure", "affinity")},
        "weights_crc32": rank["final_weights_crc32"],
        "received_mb": member["received_bytes"] / 1e6,
        "samples_preprocessed": member["samples_preprocessed"],
        "alone_from_block": member.get("alone_from_block"),
        "ended_after_epoch": member.get("ended_after_epoch"),
        "train_s": None if span is None else (span[1] - span[0]) / 1e9,
    }
