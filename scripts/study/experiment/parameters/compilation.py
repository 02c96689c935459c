"""Whether PyTorch compiles the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.experiment.parameter import Flag
from study.experiment.parameters.registry import declare, explain_idle_training
from study.machines.run_layout import DDP

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_torch_compile(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``torch_compile``, or None."""
    if not run["torch_compile"]:
        return None
    if run["framework"] != "pytorch":
        return "it is PyTorch's; give framework: pytorch"
    if run["strategy"] != DDP:
        return f"it was not tried with strategy: {run['strategy']}; use ddp"
    if run["emulated_ranks"] > 1:
        return "emulated ranks have a training step of their own; use false"
    if run["profile"]:
        return "a profile shows the operations of the model as written; use false"
    return None


declare(
    "torch_compile",
    Flag(),
    "Whether torch.compile compiles the model's forward and backward pass. Each run compiles again, in its first "
    "epoch, which therefore takes longer. Needs a C++ compiler, on a GPU also Triton.",
    default=False,
    default_in_papers=True,
    label="torch.compile",
    refuse=_refuse_torch_compile,
    idle=explain_idle_training,
)
