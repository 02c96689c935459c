"""Keys of what is observed besides the training, and of faults and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.core.wording import format_count
from study.experiment.parameter import Count, Flag
from study.experiment.parameters.registry import declare

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_straggler_loads(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``straggler_loads``, or None."""
    if run["straggler_loads"] and not run["trace"]:
        return "creates a straggler to look at in the timeline: it needs trace: true"
    if run["straggler_loads"] and run["staging"] != "none":
        return "a rank that loads more often needs staging: none"
    return None


def _refuse_checkpoints(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``checkpoint_epochs``, or None."""
    if run["checkpoint_epochs"] and (run["trace"] or run["profile"]):
        return "a traced or profiled run has no checkpoints; give two grids"
    if run["checkpoint_epochs"] and run["input_pipeline"] == "keras_arrays":
        return (
            "a run cannot be resumed exactly with input_pipeline: keras_arrays, since Keras keeps the order of the "
            "samples to itself; use tf_data"
        )
    return None


def _refuse_trace(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``trace``, or None."""
    if run["trace"] and run.gpus == 1:
        return "one rank has no communication to trace; give gpus of 2 or more"
    return None


def _refuse_profile(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``profile``, or None."""
    if run["trace"] and run["profile"]:
        return (
            "a run cannot be traced and profiled at once: each slows the run, and its time would count as the other's; "
            "give two grids"
        )
    return None


def _refuse_allreduce_sweep(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``allreduce_sweep``, or None."""
    if run["allreduce_sweep"] and run.gpus == 1:
        return "one rank has no communication to time; give gpus of 2 or more"
    if run["allreduce_sweep"] and (run["trace"] or run["profile"]):
        return "tracing and profiling slow the allreduces; give two grids"
    return None


def _refuse_emulated_ranks(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``emulated_ranks``, or None."""
    if run["emulated_ranks"] == 1:
        return None
    if run.gpus != 1:
        return f"one rank emulates others, but gpus is {run.gpus}; give gpus: 1"
    if run["input_pipeline"] == "keras_arrays":
        return "Keras keeps the order of the samples to itself with input_pipeline: keras_arrays; use tf_data"
    if run["profile"]:
        return "the profile of an emulated run says nothing about its ranks; give two grids"
    return None


def _explain_idle_checkpoints(run: PlannedRun) -> str | None:
    """The reason why ``checkpoint_epochs`` has no effect in a run, or None."""
    interval, epochs = run["checkpoint_epochs"], run.epochs_per_rank
    return f"none is written: a rank trains {format_count(epochs, 'epoch')}" if interval > epochs else None


declare(
    "straggler_loads",
    Count(0, 1000),
    "Number of additional times that the last rank loads its files, which makes it a straggler.",
    default=0,
    refuse=_refuse_straggler_loads,
)

declare(
    "checkpoint_epochs",
    Count(0),
    "Number of epochs after which a checkpoint is written each time; 0 for no checkpoints.",
    default=0,
    unit="epochs",
    label="epochs between checkpoints",
    refuse=_refuse_checkpoints,
    idle=_explain_idle_checkpoints,
)

declare(
    "trace",
    Flag(),
    "Whether Horovod's timeline is recorded. It slows the run, so a traced run gives no timings. Needs gpus of 2 "
    "or more.",
    default=False,
    refuse=_refuse_trace,
    observes=True,
)

declare(
    "profile",
    Flag(),
    "Whether the ranks run under cProfile. It slows the run, so a profiled run gives no timings.",
    default=False,
    refuse=_refuse_profile,
    observes=True,
)

declare(
    "allreduce_sweep",
    Flag(),
    "Whether the ranks time allreduces of 4 KiB to 16 MiB after the evaluation. Such a run gives no other timings.",
    default=False,
    refuse=_refuse_allreduce_sweep,
    observes=True,
)

declare(
    "emulated_ranks",
    Count(1, 100_000),
    "Number of ranks that one rank emulates: it trains with the epochs, batches, learning rate and averaged "
    "gradients of this number of ranks, and computes their gradients one after the other; 1 for no emulation. "
    "Needs gpus: 1. The run gives no timings.",
    default=1,
    unit="ranks",
    refuse=_refuse_emulated_ranks,
    observes=True,
)
