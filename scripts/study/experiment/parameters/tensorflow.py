"""Keys of TensorFlow's own settings, of the training loop, and an injected delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.experiment.parameter import Choice, Count, Flag, Number
from study.experiment.parameters.registry import declare, explain_idle_training

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


def _refuse_precision(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``precision``, or None."""
    if run["precision"] != "float32" and run["emulated_ranks"] > 1:
        return "an emulated run sums the gradients in float32; use float32"
    if run["precision"] == "mixed_float16" and run["checkpoint_epochs"]:
        return "checkpoints lack the loss scale; use mixed_bfloat16, or checkpoint_epochs: 0"
    if run["precision"] == "mixed_float16" and run["backward_passes_per_step"] > 1:
        return "the loss scale would change between the passes of a step; use mixed_bfloat16"
    return None


def _refuse_training_loop(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``training_loop``, or None."""
    if run["training_loop"] == "custom" and run["emulated_ranks"] > 1:
        return "emulated ranks have a training step of their own; use keras"
    if run["training_loop"] == "custom" and run["profile"] is True:
        return "the profile's columns are of Keras's loop; use keras"
    if run["training_loop"] == "custom" and run["input_pipeline"] == "keras_arrays":
        return "input_pipeline: keras_arrays hands the arrays to Keras's loop; use tf_data"
    return None


declare(
    "intra_op_threads",
    Count(0, 4096),
    "Threads of a rank that compute one operation together. 0: cores_per_rank of the machine's file, less "
    "communication_cores.",
    default=0,
    unit="threads",
    default_in_papers=True,
    label="intra-op threads",
)

declare(
    "inter_op_threads",
    Count(0, 4096),
    "Operations that a rank computes at the same time. 0: one.",
    default=0,
    unit="threads",
    default_in_papers=True,
    label="inter-op threads",
)

declare(
    "precision",
    Choice(("float32", "mixed_bfloat16", "mixed_float16")),
    "Number type in which layers compute. Weights, gradients, and the layers that give the output stay float32. "
    "mixed_float16 scales the loss (Keras's LossScaleOptimizer).",
    default="float32",
    default_in_papers=True,
    refuse=_refuse_precision,
    idle=explain_idle_training,
)

declare(
    "xla",
    Flag(),
    "Whether XLA compiles the parts of the training step between the allreduces (auto-clustering).",
    default=False,
    default_in_papers=True,
    label="XLA",
    idle=explain_idle_training,
)

declare(
    "training_loop",
    Choice(("keras", "custom")),
    "Which loop runs the steps of an epoch. keras: Keras's fit. custom: this project's loop around a compiled "
    "step; validation and evaluation remain Keras's.",
    default="keras",
    default_in_papers=True,
    refuse=_refuse_training_loop,
)

declare(
    "kmp_blocktime_ms",
    Count(-1, 1_000_000),
    "Time for which a thread of Intel's OpenMP waits for work before it sleeps (KMP_BLOCKTIME). -1: the value of "
    "the machine's file or the library. A placebo with TensorFlow's public packages, which have no OpenMP.",
    default=-1,
    unit="ms",
    default_in_papers=True,
    label="KMP_BLOCKTIME (ms)",
)

declare(
    "step_delay_ms",
    Number(),
    "Injected delay: each rank sleeps before each step. Tests whether the comparison of arms finds a slow-down of "
    "known size. 0: no delay.",
    default=0.0,
    unit="ms",
    default_in_papers=True,
    label="injected delay per step (ms)",
)
