"""The section ``ensemble`` of a record: what an ensemble did and what it cost, over all its members."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from study.instruments import phases

# What the members predict together, see `study.ensembles.votes`.
VOTED = ("voting_members", "member_test_accuracy", "vote_test_accuracy", "mean_test_accuracy",
         "ensemble_accuracy_reason")  # fmt: skip


_Span = tuple[int, ...]  # begin and end


def section(metrics: Mapping[str, Any], edges: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The section, from a run's ``metrics.json``; None for a run that was no ensemble. edges: of the run's phases."""
    ranks = [rank for rank in metrics["ranks"] if "member" in rank]
    if not ranks:
        return None
    members = [rank["member"] for rank in ranks]

    def reduced(name: str, reduce: Callable[[list[Any]], Any]) -> Any:
        """``reduce`` of the ranks' values; None if one has none."""
        values = [member.get(name) for member in members]
        return None if None in values else reduce(values)

    on_limited, elsewhere = reduced("process_cpu_s", sum), reduced("other_cores_cpu_s", sum)
    spans = _spans(ranks, list(edges))
    return {
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
        **{name: metrics.get("combined", {}).get(name) for name in VOTED},
        "members": [_member(each, spans[each["rank"]]) for each in ranks],
    }


def _spans(ranks: Sequence[Mapping[str, Any]], edges: list[dict[str, Any]]) -> dict[int, _Span | None]:
    """{rank: when its member trained, in ns that are common to all hosts; None if its host has no phases}.

    By the monotonic clock of the rank's host.
    """
    zeros = phases.compute_zeros_ns(edges)
    spans: dict[int, _Span | None] = {}
    for rank in ranks:
        member, zero = rank["member"], zeros.get(rank["host"])
        times = None if zero is None else (member["begun_monotonic_ns"] + zero, member["ended_monotonic_ns"] + zero)
        spans[rank["rank"]] = times
    return spans


def _makespan_s(spans: Sequence[_Span | None]) -> float | None:
    """From the first begin to the last end."""
    measured = [span for span in spans if span is not None]
    if len(measured) < len(spans):
        return None
    return (max(ended for _, ended in measured) - min(begun for begun, _ in measured)) / 1e9


def _member(rank: Mapping[str, Any], span: _Span | None) -> dict[str, Any]:
    """What the record has of one member; its losses and metrics are in ``members.csv``. span: see `_spans`."""
    member = rank["member"]
    return {
        "member": member["number"],
        "rank": rank["rank"],
        **{name: member[name] for name in ("seed", "learning_rate", "batch_size", "epochs", "affinity")},
        "weights_crc32": rank["final_weights_crc32"],
        "received_mb": member["received_bytes"] / 1e6,
        "samples_preprocessed": member["samples_preprocessed"],
        "train_s": None if span is None else (span[1] - span[0]) / 1e9,
    }
