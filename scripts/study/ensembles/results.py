"""What the ranks of an ensemble tell one another at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.files import copy, number_or_none, write_json
from study.experiment.definition import RunDefinition
from study.instruments import phases
from study.training import history
from study.training.history import History

WAITED = "input_wait_per_step_s"


def of_rank(member: Mapping[str, Any], rows: History, test_metrics: Mapping[str, float]) -> dict[str, Any]:
    """What a rank tells of its member.

    member: as a member's job describes it. rows: of its history; empty if it has failed.
    """
    last = rows[-1] if rows else {}
    names = [name for name in last if name == "loss" or name.startswith("val_")]
    metrics = [name.removeprefix("val_") for name in names if name.startswith("val_") and name != "val_loss"]
    quality = {name: number_or_none(last[name]) for name in (*names, *metrics)}
    return {
        **member,
        "epochs": len(rows),
        "epochs_s": math.fsum(history.known(rows, "time_s")),
        "losses": history.values(rows, "loss") if history.has(rows, "loss") else [],
        "quality": quality | {f"test_{name}": number_or_none(value) for name, value in test_metrics.items()},
        "input_stall_s": _stall_s(member, rows),
    }


def _stall_s(member: Mapping[str, Any], rows: History) -> float | None:
    """Seconds for which the member waited for batches, of all epochs; None if that is not measured."""
    if not history.has(rows, WAITED):
        return None
    return math.fsum(history.known(rows, WAITED)) * float(member["steps_per_epoch"])


def left_alone(run: RunDefinition) -> bool:
    """Whether each rank leaves its results to the launching process: other ranks may be lost by then."""
    return run.parameters.get("on_member_failure", "end") == "continue"


def leave(ranks: Path, rank: int, content: Mapping[str, Any], rows: History) -> None:
    """Leave the results of a rank in the folder of the ranks' files. content: of ``metrics.json``."""
    history.write(ranks / f"history-{rank:05d}.csv", rows)
    write_json(ranks / f"results-{rank:05d}.json", content)


def trained_to_the_end(rank: Mapping[str, Any]) -> bool:
    """Whether the member of a rank has trained all epochs: it has neither failed nor stopped early.

    rank: of ``metrics.json``; true if the run is no ensemble.
    """
    member = rank.get("member", {})
    return member.get("failure") is None and member.get("ended_after_epoch") is None


def trained_without_failure(rank: Mapping[str, Any]) -> bool:
    """Whether the member of a rank has not failed; true if the run is no ensemble. rank: of ``metrics.json``."""
    return rank.get("member", {}).get("failure") is None


def first_to_the_end(everyone: Sequence[Mapping[str, Any]]) -> int:
    """The first rank whose member has trained all epochs, which writes the run's files; rank 0 if there is none."""
    return next((each["rank"] for each in everyone if trained_to_the_end(each)), 0)


def assemble(folder: Path, members: int) -> None:
    """Write the run's files from what the ranks have left in ``folder``'s ``ranks``; nothing if no member is left.

    members: of the ensemble. A rank that left nothing is lost: its member has failed in the phase in which it ended.
    """
    ranks = folder / "ranks"
    found = {n: path for n in range(members) if (path := ranks / f"results-{n:05d}.json").exists()}
    contents = {rank: checked.load_json(path, "metrics") for rank, path in found.items()}
    everyone = [each for content in contents.values() for each in content["ranks"]]
    finished = [each["rank"] for each in everyone if trained_to_the_end(each)]
    if not finished:
        return
    lost = [
        {"member": rank, "rank": rank, "failure": _end_of(ranks, rank)} for rank in range(members) if rank not in found
    ]
    copy(ranks / f"history-{finished[0]:05d}.csv", folder / "history.csv")
    write_json(folder / "metrics.json", contents[finished[0]] | {"ranks": everyone, "members_lost": lost})


def _end_of(ranks: Path, rank: int) -> str:
    """How a rank ended that left no results."""
    log = ranks / f"phases-{rank:05d}.jsonl"
    phase = phases.last(phases.read(log, is_merged=False))[0] if log.exists() else None
    return f"rank {rank} ended in phase {phase or 'startup'} without results; train.log has its last words"


def by_member(ranks: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The ranks of each member. ranks: of all, of ``metrics.json``."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for rank in ranks:
        found.setdefault(rank["member"]["number"], []).append(rank)
    return list(found.values())


def of_member(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the ranks of a member tell of it: what its first one tells, with sums and the failure of any.

    ranks: of ``metrics.json``, ascending.
    """
    told = [rank["member"] for rank in ranks]
    alone = [each["alone_from_block"] for each in told if each.get("alone_from_block") is not None]
    return {
        **told[0],
        **{name: sum(each[name] for each in told) for name in ("samples_preprocessed", "received_bytes")},
        "failure": next((each["failure"] for each in told if each["failure"]), None),
        "alone_from_block": min(alone, default=None),
    }
