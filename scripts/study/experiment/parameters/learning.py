"""Keys of the learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.experiment.parameter import Choice, Count, Number, Parameter
from study.experiment.parameters.registry import declare

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _warmup(run: PlannedRun) -> str | None:
    epochs = run["warmup_epochs"]
    if epochs > run.epochs_per_rank:
        return f"{epochs} is more than the {run.epochs_per_rank} epochs of a rank"
    if epochs and run["learning_rate_scaling"] == "none":
        return "there is nothing to warm up to with learning_rate_scaling: none"
    return None


def _by_layer(run: PlannedRun) -> str | None:
    if run["learning_rate_by_layer"] == "lars" and run.spec["optimizer"] != "sgd":
        return f"LARS is momentum SGD, but {run.dataset.benchmark}'s optimizer is {run.spec['optimizer']}; use none"
    return None


def _plateau(run: PlannedRun) -> str | None:
    if run["plateau_epochs"] and run["warmup_epochs"]:
        return "the warm-up sets the learning rate in each step and would undo a reduction; give two grids"
    return None


declare(
    Parameter(
        "learning_rate_scaling",
        Choice(("linear", "none")),
        "Whether the learning rate is multiplied by the number of ranks (linear scaling rule).",
        default="linear",
        papers={"icpp2019": "linear"},
    )
)

declare(
    Parameter(
        "base_learning_rate",
        Number(),
        "The learning rate of one rank, which learning_rate_scaling multiplies; 0 for the benchmark's.",
        default=0.0,
        papers={"icpp2019": 0.0, "sc18": 0.0},
    )
)

declare(
    Parameter(
        "warmup_epochs",
        Count(0),
        "Epochs in which the learning rate grows from one rank's rate to the scaled rate.",
        default=0,
        papers={"icpp2019": 0, "sc18": 0},
        label="warm-up epochs",
        refuse=_warmup,
    )
)

declare(
    Parameter(
        "plateau_epochs",
        Count(0),
        "The learning rate falls to a tenth when the validation loss has not improved for so many epochs (Keras's "
        "ReduceLROnPlateau; CANDLE's NT3 has 10); 0 for never. The papers do not mention it.",
        default=0,
        unit="epochs",
        papers={"icpp2019": 0, "sc18": 0},
        label="epochs to a reduction on a plateau",
        refuse=_plateau,
    )
)

declare(
    Parameter(
        "learning_rate_by_layer",
        Choice(("none", "lars")),
        "Whether each layer's learning rate is scaled by the norms of its weights and gradient (LARS), for large "
        "batches. The learning rate then multiplies 0.001 x norm of the weights / norm of the gradient.",
        default="none",
        papers={"icpp2019": "none", "sc18": "none"},
        refuse=_by_layer,
    )
)
