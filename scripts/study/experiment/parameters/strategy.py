"""Keys of how the ranks train together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.data.samples import Can
from study.experiment.parameter import Choice, Count
from study.experiment.parameters.registry import declare, refuse_combination
from study.machines import launchers
from study.machines.run_layout import DDP, HOROVOD
from study.workloads import command

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

# Keys that must have their defaults with a parameter server, and why.
NOT_WITH_SERVERS = {
    "trace": "the timeline is Horovod's",
    "allreduce_sweep": "the sweep times Horovod's allreduces",
    "emulated_ranks": "emulated ranks stand for Horovod's",
    "straggler_loads": "the straggler is a rank of Horovod",
    "checkpoint_epochs": "a run resumes through Horovod's broadcast",
    "fusion_threshold_mb": "the fusion buffer is Horovod's",
    "cycle_time_ms": "the cycle is Horovod's",
    "cache_capacity": "the response cache is Horovod's",
    "gradient_compression": "it is Horovod's",
    "backward_passes_per_step": "it is Horovod's",
    "intra_op_threads": "a strategy sets its processes' threads itself",
    "inter_op_threads": "a strategy sets its processes' threads itself",
    "precision": "the copy for the evaluation has float32",
    "xla": "it was not tried",
    "training_loop": "the custom loop is for Horovod's ranks",
    "prefetch_batches": "a strategy has an input of its own",
    "map_parallel_calls": "a strategy has an input of its own",
    "cache_samples": "a strategy has an input of its own",
    "shuffle_buffer_samples": "a strategy has an input of its own",
    "binding": "a strategy has other processes than ranks",
    "warmup_epochs": "the learning rate cannot be set before each step, which a worker makes when it can",
    "learning_rate_decay": "the learning rate cannot be set before each step, which a worker makes when it can",
    "step_delay_ms": "a worker makes its steps when it can",
    "plateau_epochs": "a reduction needs an epoch in which all workers are in step",
    "profile": "the chief trains nothing; there is no rank to profile",
}
MOST_SENT = (1 << 31) - (1 << 20)  # bytes of an array in a message of TensorFlow's servers (gRPC), less its frame
PARAMETER_SERVER = "parameter_server"
# Keys that some strategies have; the others refuse another value than the default.
OF_STRATEGIES = {
    "servers": (PARAMETER_SERVER,),
    "server_placement": (PARAMETER_SERVER,),
    "torch_compile": (DDP,),
}


def list_inapplicable_keys(strategy: str) -> set[str]:
    """The keys that have no effect in runs with a strategy: those of other strategies, and those that it refuses."""
    foreign_keys = {name for name, strategies in OF_STRATEGIES.items() if strategy not in strategies}
    return foreign_keys | set(NOT_WITH_SERVERS if strategy == PARAMETER_SERVER else ())


def _refuse_strategy(run: PlannedRun) -> str | None:
    """The reason why a run's framework and keys do not fit its strategy; keys at their defaults do."""
    strategy = run["strategy"]
    if strategy == DDP:
        return None if run["framework"] == "pytorch" else f"{strategy} is PyTorch's; give framework: pytorch"
    if strategy == HOROVOD:
        return None
    if why := refuse_combination(run, strategy, NOT_WITH_SERVERS):
        return why
    if run["staging"] != "none":
        return f"{strategy} cannot be combined with staging: {run['staging']}; use none"
    if run["input_pipeline"] != "tf_data" or Can.RANDOM_ACCESS not in run.source_can:
        return f"{strategy} needs input_pipeline: tf_data and samples at any position"
    return _refuse_large_samples(run)


def _refuse_strategy_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``strategy`` on a machine, or None."""
    launcher = machine["launcher"]
    if run.kind == command.KIND or run["strategy"] != HOROVOD or launchers.get_launcher(dict(machine)).starts_horovod:
        return None
    return f"launcher: {launcher} does not start Horovod, which {run.dataset.benchmark} trains with here"


def _refuse_large_samples(run: PlannedRun) -> str | None:
    """The reason why the chief cannot send a worker a table's samples, which go in one message; None if it can.

    Samples that are joined from several tables are larger than what is sent.
    """
    shape = run.dataset.shape
    if run.kind != "tables" or shape is None or Can.IN_MEMORY not in run.source_can:
        return None
    size = 4 * shape["train_samples"] * shape["features"]  # float32
    if size <= MOST_SENT:
        return None
    return (
        f"the chief sends each worker all training samples in one message, {size / 1e9:.1f} GB of at most "
        f"{MOST_SENT / 1e9:.1f} GB; use horovod"
    )


def _refuse_servers(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``servers``, or None."""
    if run["strategy"] == "parameter_server":
        return None if run["servers"] else "strategy: parameter_server needs 1 or more"
    return f"{run['servers']} servers need strategy: parameter_server" if run["servers"] else None


def _refuse_server_placement(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``server_placement``, or None."""
    if run["server_placement"] != "round_robin" and run["strategy"] != "parameter_server":
        return "needs strategy: parameter_server"
    return None


declare(
    "strategy",
    Choice((HOROVOD, PARAMETER_SERVER, DDP)),
    "How the ranks train together. horovod: allreduce by Horovod. parameter_server: the ranks are workers that "
    "send gradients to servers, asynchronously (TensorFlow). ddp: allreduce by PyTorch's DistributedDataParallel, "
    "over Gloo, or NCCL on GPUs.",
    default="horovod",
    refuse=_refuse_strategy,
    refuse_on=_refuse_strategy_on,
)

declare(
    "servers",
    Count(0, 1000),
    "Number of parameter servers. Needs strategy: parameter_server, which refuses 0.",
    default=0,
    refuse=_refuse_servers,
)

declare(
    "server_placement",
    Choice(("round_robin", "min_size")),
    "How variables are placed on the servers. round_robin: whole, in turn. min_size: large ones are split over the "
    "servers, into parts of 256 KiB or more (TensorFlow's MinSizePartitioner).",
    default="round_robin",
    refuse=_refuse_server_placement,
)
