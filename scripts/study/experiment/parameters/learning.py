"""Keys of the learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.experiment.learning_rate import parse_epochs
from study.experiment.parameter import Choice, Count, EpochList, Number
from study.experiment.parameters.registry import (
    combine_reasons,
    declare,
    explain_idle_scaling,
    explain_idle_training,
    is_at_default,
)
from study.workloads import operations

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_warmup_epochs(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``warmup_epochs``, or None."""
    epochs = run["warmup_epochs"]
    if epochs > run.epochs_per_rank:
        return f"{epochs} is more than the {run.epochs_per_rank} epochs of a rank"
    if epochs and run["learning_rate_scaling"] == "none":
        return "there is nothing to warm up to with learning_rate_scaling: none"
    return None


def _refuse_warmup(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``warmup``, or None."""
    if run["warmup"] == "gradual":
        return None
    if not run["warmup_epochs"]:
        return f"{run['warmup']} says how the rate grows in warmup_epochs, which is 0; give warmup_epochs"
    return None


def _refuse_decay(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``learning_rate_decay``, or None."""
    if run["learning_rate_decay"] == "none":
        return None
    if run["plateau_epochs"]:
        return "the decay sets the learning rate and would undo a reduction on a plateau; give two grids"
    if run["warmup_epochs"] >= run.epochs_per_rank:
        return f"the warm-up takes all {run.epochs_per_rank} epochs of a rank; give fewer warmup_epochs, or use none"
    return None


def _refuse_decay_epochs(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``decay_epochs``, or None."""
    decay, epochs = run["learning_rate_decay"], run["decay_epochs"]
    if decay == "step" and parse_epochs(run["reduction_epochs"]):
        return "reduction_epochs says when the rate falls; leave one of them out" if epochs else None
    if decay in ("none", "linear"):
        return f"learning_rate_decay: {decay} does not take it; leave it out" if epochs else None
    if epochs == 0:
        return f"learning_rate_decay: {decay} needs 1 or more"
    if decay == "collapsed" and epochs >= (remaining_epochs := run.epochs_per_rank - run["warmup_epochs"]):
        after = f"{remaining_epochs} epochs after the warm-up"
        return f"{epochs} epochs of collapse leave none of the {after} for the linear decay"
    return None


def _refuse_reduction_epochs(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``reduction_epochs``, or None."""
    epochs = parse_epochs(run["reduction_epochs"])
    if epochs and run["learning_rate_decay"] != "step":
        return "needs learning_rate_decay: step"
    if epochs != sorted(set(epochs)):
        return f"{run['reduction_epochs']}: each epoch must be later than the one before"
    return None


def _refuse_plateau_epochs(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``plateau_epochs``, or None."""
    if run["plateau_epochs"] and run["warmup_epochs"]:
        return "the warm-up sets the learning rate in each step and would undo a reduction; give two grids"
    return None


def _explain_idle_plateau(run: PlannedRun) -> str | None:
    """The reason why ``plateau_epochs`` has no effect in a run, or None."""
    epochs, run_epochs = run["plateau_epochs"], run.epochs_per_rank
    return f"no plateau of {epochs} epochs fits in {run_epochs} epochs of a rank" if epochs >= run_epochs else None


def _explain_idle_decay(run: PlannedRun) -> str | None:
    """The reason why ``learning_rate_decay`` has no effect in a run, or None."""
    epochs = next(iter(parse_epochs(run["reduction_epochs"])), run["decay_epochs"])
    if run["learning_rate_decay"] == "step" and epochs >= run.epochs_per_rank:
        return f"the first reduction would be after {epochs} epochs, and a rank trains {run.epochs_per_rank}"
    return None


def _refuse_batch_norm_momentum(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``batch_norm_momentum``, or None."""
    name = run.dataset.benchmark
    if is_at_default(run, "batch_norm_momentum"):
        return None
    layers = operations.list_layers(name, run.spec["model"], 0)
    if layers is None or any(layer.is_normalised for layer in layers):  # None: a model of others is asked when built
        return None
    return f"{name} has no batch normalisation; leave it out"


declare(
    "learning_rate_scaling",
    Choice(("linear", "none")),
    "Whether the learning rate is multiplied by the number of ranks (linear scaling rule).",
    default="linear",
    # Table 1 has no learning rate of P1B1, so whether it was scaled is not known.
)

declare(
    "base_learning_rate",
    Number(),
    "The learning rate of one rank, which learning_rate_scaling multiplies; 0 for the benchmark's.",
    default=0.0,
    idle=explain_idle_training,
)

declare(
    "warmup_epochs",
    Count(0),
    "Epochs in which the learning rate grows from one rank's rate to the scaled rate.",
    default=0,
    label="warm-up epochs",
    refuse=_refuse_warmup_epochs,
    idle=combine_reasons(explain_idle_scaling, explain_idle_training),
)

declare(
    "plateau_epochs",
    Count(0),
    "The learning rate falls to a tenth when the validation loss has not improved for so many epochs (Keras's "
    "ReduceLROnPlateau; CANDLE's NT3 has 10); 0 for never. The papers do not mention it.",
    default=0,
    unit="epochs",
    label="epochs to a reduction on a plateau",
    refuse=_refuse_plateau_epochs,
    idle=combine_reasons(_explain_idle_plateau, explain_idle_training),
)

declare(
    "warmup",
    Choice(("gradual", "constant", "by_epoch")),
    "How warmup_epochs begin. gradual: the rate grows with each step. constant: it stays that of one rank until "
    "they end. by_epoch: it grows by an equal amount with each epoch (arXiv:1706.02677, section 2.2).",
    default="gradual",
    default_in_papers=True,
    refuse=_refuse_warmup,
)

declare(
    "learning_rate_decay",
    Choice(("none", "step", "linear", "collapsed")),
    "How the scaled learning rate falls. step: to a tenth every decay_epochs or after each of reduction_epochs. "
    "linear: step by step towards 0. collapsed: linear, and quadratic in the last decay_epochs, in which the weight "
    "decay is doubled and augmentation is light at most (PRACE guide, 6.2.7).",
    default="none",
    default_in_papers=True,
    refuse=_refuse_decay,
    idle=combine_reasons(_explain_idle_decay, explain_idle_training),
)

declare(
    "decay_epochs",
    Count(0),
    "Epochs from one reduction to the next (step), or of the collapse (collapsed).",
    default=0,
    unit="epochs",
    default_in_papers=True,
    refuse=_refuse_decay_epochs,
)

declare(
    "reduction_epochs",
    EpochList(),
    "Epochs after each of which the learning rate falls to a tenth, with learning_rate_decay: step and without "
    "decay_epochs. none: every decay_epochs.",
    default="none",
    default_in_papers=True,
    refuse=_refuse_reduction_epochs,
)

declare(
    "batch_norm_momentum",
    Number(below=1),
    "Share of the old value in each update of batch normalisation's moving statistics; 0 for the network's own, "
    "which is 0.9 in this project's. The PRACE guide has 0.95 (6.2.6).",
    default=0.0,
    default_in_papers=True,
    refuse=_refuse_batch_norm_momentum,
)
