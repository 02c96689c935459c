"""Keys of Horovod's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.core.wording import format_count
from study.experiment.parameter import Choice, Count, Number
from study.experiment.parameters.registry import declare, explain_idle_communication, is_at_default

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_cache_capacity(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``cache_capacity``, or None."""
    if run["trace"] and not is_at_default(run, "cache_capacity"):
        return "a traced run disables the response cache to show each negotiation; give two grids"
    return None


def _refuse_backward_passes(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``backward_passes_per_step``, or None."""
    if run["backward_passes_per_step"] == 1:
        return None
    if run["emulated_ranks"] > 1:
        return "an emulated run averages the gradients itself; use 1"
    if run.steps is not None and run["backward_passes_per_step"] > run.steps:
        return f"it is more than the {format_count(run.steps, 'step')} of the run: the weights would never change"
    if run["checkpoint_epochs"]:
        return "checkpoints lack gradients that are not applied yet; use checkpoint_epochs: 0"
    return None


def _refuse_compression(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``gradient_compression``, or None."""
    if run["gradient_compression"] != "none" and run["emulated_ranks"] > 1:
        return "an emulated run sends no gradients; use none"
    return None


declare(
    "fusion_threshold_mb",
    Count(0, 4095),
    "Size of Horovod's fusion buffer: gradients are fused into one allreduce up to this size. 0: one allreduce per "
    "gradient (HOROVOD_FUSION_THRESHOLD).",
    default=128,
    unit="MiB",
    label="fusion threshold (MiB)",
    idle=explain_idle_communication,
)

declare(
    "cycle_time_ms",
    Number(),
    "Time from one cycle of Horovod's background thread to the next. In each cycle it sends the gradients that are "
    "ready on all ranks (HOROVOD_CYCLE_TIME).",
    default=1.0,
    unit="ms",
    label="cycle time (ms)",
    idle=explain_idle_communication,
)

declare(
    "cache_capacity",
    Count(0),
    "Number of tensors in Horovod's response cache, which saves negotiating them again; 0: no cache "
    "(HOROVOD_CACHE_CAPACITY).",
    default=1024,
    unit="tensors",
    label="response cache (tensors)",
    refuse=_refuse_cache_capacity,
    idle=explain_idle_communication,
)

declare(
    "gradient_compression",
    Choice(("none", "fp16")),
    "Whether gradients are sent in 16 bits. They are then also summed in 16 bits.",
    default="none",
    default_in_papers=True,
    refuse=_refuse_compression,
    idle=explain_idle_communication,
)

declare(
    "backward_passes_per_step",
    Count(1, 100_000),
    "Number of batches whose gradients a rank averages before the allreduce and the weight update. The learning "
    "rate is not scaled by it. Gradients left over at the end of the run are not applied.",
    default=1,
    unit="batches",
    default_in_papers=True,
    refuse=_refuse_backward_passes,
)
