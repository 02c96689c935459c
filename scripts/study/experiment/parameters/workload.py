"""Keys of what is trained: benchmark, dataset, scaling, epochs, ranks, batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study import workloads
from study.experiment.parameter import Choice, Count, FromBenchmark, FromGrid, Name
from study.experiment.parameters.pytorch import refuse_pytorch
from study.experiment.parameters.registry import declare, explain_idle_scaling
from study.workloads import command
from study.workloads.command import own_parameters

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun


PYTORCH = "pytorch"
AVAILABLE = "available"  # instead of numbers of ranks


def _refuse_batch_scaling(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``batch_scaling``, or None."""
    if run["scaling"] == "batch" and run["batch_scaling"] == "none":
        return (
            "scaling: batch needs one of linear, square_root, cubic_root; "
            "a batch size that does not grow with the ranks is scaling: weak"
        )
    return None


def _refuse_work(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``work``, or None."""
    if run["work"] != run.spec.get("work", command.EPOCHS):
        return f"is given in config/benchmarks/{run['benchmark']}.yaml, if it is a command; leave it out"
    return None


def _refuse_framework(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``framework``, or None."""
    why = workloads.explain_missing_model(run.dataset.benchmark, run["framework"])
    return why or (refuse_pytorch(run) if run["framework"] == PYTORCH else None)


declare("benchmark", Name(), "The benchmark: a file name in config/benchmarks without .yaml.")

declare(
    "dataset",
    Name(),
    "The dataset: a key of the study's datasets; the benchmark's name by default. In records: the dataset's id, "
    "which is the same in all studies.",
)

declare(
    "scaling",
    Choice(("strong", "weak", "batch")),
    "What happens as ranks are added. strong: the epochs are divided among the ranks. weak: each rank trains all "
    "epochs. batch: the batch size of a rank grows too, see batch_scaling.",
)

declare(
    "work",
    Choice(command.WORK),
    "What the ranks divide under strong scaling. epochs: each rank trains its share of the epochs. samples: each "
    "rank has its share of every epoch's samples, as in data parallel training. steps: each rank makes its share "
    "of the steps. fixed: the program divides its work itself. Benchmarks of a command set this key in their file; "
    "this project's own benchmarks divide epochs.",
    default=command.EPOCHS,
    default_in_papers=True,
    label="divided work",
    refuse=_refuse_work,
)

declare(
    own_parameters.NAME,
    Name(),
    "The parameters of a command that differ from their defaults, such as `hidden~64+rate~0.1`. Grids and arms "
    "give each by its own name, as the benchmark's file declares it.",
    default=own_parameters.NONE,
    default_in_papers=True,
)

declare(
    "epochs",
    Count(),
    "Epochs of the run; under strong scaling of all ranks together.",
    default=FromBenchmark(lambda spec, scaling: spec["epochs"].get(scaling), "epochs"),
)

declare(
    "gpus",
    Count(),
    "Number of ranks, one per GPU; on machines without GPUs one per node or core. Required without ensemble. "
    f"`{AVAILABLE}` instead of numbers: 1, 2, 4 and so on, up to what the machine's cores or GPUs carry and the "
    "epochs can be divided among.",
    default=FromGrid(lambda given: given.get("ensemble"), "one rank for each member of the ensemble"),
)

declare(
    "batch_size",
    Count(),
    "Batch size before batch scaling.",
    default=FromBenchmark(lambda spec, scaling: spec["batch_size"], "batch_size"),
    unit="samples",
)

declare(
    "batch_scaling",
    Choice(("none", "linear", "square_root", "cubic_root")),
    "How the batch size of a rank grows with N ranks: not at all, by N, by the square root or the cube root of N. "
    "Required with scaling: batch, which refuses none.",
    default="none",
    refuse=_refuse_batch_scaling,
    idle=explain_idle_scaling,
)

declare(
    "framework",
    Choice((workloads.TENSORFLOW, PYTORCH)),
    "The framework that trains: the benchmark's model is in the module of this name in its package in "
    "`scripts/study/workloads`. pytorch has the strategies ddp and horovod, and needs `make setup WITH=pytorch`.",
    default=workloads.TENSORFLOW,
    default_in_papers=True,
    refuse=_refuse_framework,
)
