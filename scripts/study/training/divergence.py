"""Divergence: a run whose loss is no longer finite has failed, and its error names the step."""

from __future__ import annotations

import math
from collections.abc import Mapping

from study.core.errors import StudyError

MESSAGE = "the loss is not finite"  # `study.launch.failure` looks for it


def check_losses(logs: Mapping[str, float], epoch: int, steps: int, finite: int) -> None:
    """Raise `StudyError` if ``loss`` or ``val_loss`` of an epoch is not finite.

    epoch: from 0. steps: of an epoch. finite: steps of the epoch whose loss was finite.
    """
    losses = {name: logs[name] for name in ("loss", "val_loss") if name in logs}
    if not all(map(math.isfinite, losses.values())):
        step = epoch * steps + min(finite + 1, steps)
        values = ", ".join(f"{name} {value}" for name, value in losses.items())
        raise StudyError(f"{MESSAGE} from step {step} on ({values}); lower the learning rate")


def check_test_loss(metrics: Mapping[str, float], steps: int) -> None:
    """Raise `StudyError` if the test loss is not finite. steps: of the whole run."""
    if not math.isfinite(metrics.get("loss", 0.0)):
        raise StudyError(
            f"{MESSAGE} after step {steps}, the last (test loss {metrics['loss']}); lower the learning rate"
        )
