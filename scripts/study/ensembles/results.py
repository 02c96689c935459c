"""What the ranks of an ensemble tell one another at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from study.core.files import number_or_none
from study.training import history
from study.training.history import History

WAITED = "input_wait_per_step_s"


def of_rank(member: Mapping[str, Any], rows: History, test_metrics: Mapping[str, float]) -> dict[str, Any]:
    """What a rank tells of its member.

    member: as a member's job describes it. rows: of its history; empty if it has trained nothing.
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
