"""Keys of ensembles: networks that are trained at the same time and share one order of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study import workloads
from study.core import validation
from study.core.errors import StudyError
from study.core.wording import format_count
from study.experiment.ensemble import OF_SAMPLES, UNNAMED, Member, is_ensemble, list_members
from study.experiment.parameter import Choice, Count, MemberList, Number, Refusal
from study.experiment.parameters.registry import declare, is_at_default

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

WITHOUT_READERS = ("duplicated", "all_shared")  # in which all ranks preprocess
# Keys that an ensemble cannot be combined with, and why; a key at its default is no matter.
NOT_WITH_ENSEMBLES = {
    "strategy": "an ensemble is started by Horovod",
    "emulated_ranks": "a member has one rank",
    "trace": "the timeline is of ranks that train together",
    "profile": "the profile is of ranks that train together",
    "allreduce_sweep": "members average no gradients with one another",
    "straggler_loads": "members do not wait for one another's weights",
    "staging": "every rank that preprocesses reads the files",
    "input_pipeline": "samples are shared one block at a time",
    "sharding": "a member trains on all samples",
    "warmup_epochs": "members with learning rates of their own have no common warm-up",
    "gradient_compression": "members average no gradients with one another",
    "backward_passes_per_step": "members average no gradients with one another",
    "training_loop": "a member's steps are Keras's",
    "prefetch_batches": "members read ahead by blocks, see prefetch_blocks",
    "map_parallel_calls": "members share blocks, not batches",
    "cache_samples": "members do not keep shared samples",
    "shuffle_buffer_samples": "all members have one order of the samples",
}


def _refuse_ensemble(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``ensemble``, or None."""
    if not is_ensemble(run.parameters):
        return None
    for name, why in NOT_WITH_ENSEMBLES.items():
        if not is_at_default(run, name):
            return f"an ensemble cannot be combined with {name}: {why}; give two grids"
    if run.gpus != run["ensemble"]:
        members = format_count(run["ensemble"], "member")
        return f"{members} of 1 rank need gpus: {run['ensemble']}, but gpus is {run.gpus}; leave gpus out"
    if run["measure"] != "train" or run["compute"] != "measured":
        if run["step_delay_ms"]:
            return "step_delay_ms delays the steps of training, and this run has none; use 0"
        if run["checkpoint_epochs"]:
            return "checkpoints are of training, and this run trains nothing; use checkpoint_epochs: 0"
    if run["ensemble"] > 1 and run["learning_rate_scaling"] != "none":
        return (
            "linear scaling would multiply each member's learning rate by the number of ranks; use "
            "learning_rate_scaling: none"
        )
    return None


def _refuse_members(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``members``, or None."""
    if run["members"] == UNNAMED:
        return None
    members = list_members(run.parameters)
    if len(members) != run["ensemble"]:
        return f"the list has {len(members)} members, but ensemble is {run['ensemble']}"
    samples = run.samples_per_rank
    for member in members:
        if member.simulated_samples_per_s and run["compute"] != "simulated":
            return f"member {member.number}: simulated_samples_per_s needs compute: simulated"
        fixed = [name for name in OF_SAMPLES if name in member.model]
        if fixed:
            key = f"model.{fixed[0]}"
            return f"member {member.number}: {key} decides what a sample is, and members share samples; leave it out"
        if member.batch_size and run["measure"] != "train":
            return f"member {member.number}: batch_size: a throughput is measured with equal batches; leave it out"
        if member.batch_size and samples is not None and member.batch_size > samples:
            size = f"{member.batch_size} is larger than the {samples} samples of a rank"
            return f"member {member.number}: batch_size: {size}"
        if reason := _refuse_model(run, member):
            return f"member {member.number}: {reason}"
    return None


def _refuse_model(run: PlannedRun, member: Member) -> str | None:
    """The reason why a member's model cannot be changed like this, by the schema of its benchmark's ``model``."""
    if not member.model:
        return None
    name, changed, spec = run.dataset.benchmark, member.model, run.spec
    benchmark = workloads.load_workload(name, spec)
    unknown = [key for key in changed if key not in spec["model"]]
    if unknown:
        return f"model.{unknown[0]} is no key of {name}'s model"
    try:
        validation.validate({**spec["model"], **changed}, benchmark.model_schema, "model")
    except StudyError as error:
        return str(error)
    return None


def _refuse_input_sharing(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``input_sharing``, or None."""
    if run["input_sharing"] != "duplicated" and run["ensemble"] == 1:
        return f"{run['input_sharing']}: one member has nobody to share with; use duplicated, or a larger ensemble"
    return None


def _refuse_input_sharing_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``input_sharing`` on a machine, or None."""
    if run["input_sharing"] == "concurrent_broadcast" and machine["launcher"] == "horovodrun":
        return (
            "concurrent_broadcast: horovodrun starts ranks without MPI; use a machine with another launcher, such as "
            "local_mpi, or multi_broadcast"
        )
    return None


def _refuse_preprocessing_ranks(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``preprocessing_ranks``, or None."""
    ranks, members, sharing = run["preprocessing_ranks"], run["ensemble"], run["input_sharing"]
    if sharing in WITHOUT_READERS:
        if ranks not in (0, members):
            return f"{ranks}: with input_sharing: {sharing} all {members} ranks preprocess; leave it out"
        return None
    if ranks == 0:
        return f"0: input_sharing: {sharing} needs 1 to {members} ranks that preprocess"
    if ranks > members:
        return f"{ranks} is more than the {members} members (ensemble)"
    return None


def _build_ensemble_refusal(name: str) -> Refusal:
    """A function that refuses another value than the default of a key that only ensembles have."""
    reason = f"needs an ensemble: give ensemble, or leave {name} out"
    return lambda run: None if is_at_default(run, name) or is_ensemble(run.parameters) else reason


def _refuse_measure(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``measure``, or None."""
    if run["measure"] == "compute_throughput" and run["compute"] == "simulated":
        return "compute_throughput: the rate of a simulated accelerator is given, not measured; use compute: measured"
    return None


def _refuse_simulated_rate(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``simulated_samples_per_s``, or None."""
    is_simulated, rate = run["compute"] == "simulated", run["simulated_samples_per_s"]
    if is_simulated and run["measure"] == "train" and rate == 0:
        return "compute: simulated needs the rate of the accelerator: give a value above 0"
    if not is_simulated and rate:
        return f"{rate:g} needs compute: simulated"
    return None


def _explain_idle_compute(run: PlannedRun) -> str | None:
    """Why keys of the computation have no effect in a run, or None."""
    is_input_only = run["measure"] == "peak_throughput"
    return "with measure: peak_throughput nothing computes" if is_input_only else None


declare(
    "ensemble",
    Count(1, 10_000),
    "Number of members: networks that are trained at the same time, each separately, on the same samples in the "
    "same order, each on one rank. 1: an ordinary run, unless members names a list of one entry. More than one "
    "need learning_rate_scaling: none.",
    default=1,
    unit="members",
    label="members",
    refuse=_refuse_ensemble,
)

declare(
    "members",
    MemberList(),
    "Name of a list under `members` of the study, with the learning rate, seed, batch size, model parameters and "
    "simulated rate of each member. Records have the list itself. none: the members "
    "differ in their seeds only.",
    default=UNNAMED,
    label="list of members",
    refuse=_refuse_members,
)

declare(
    "input_sharing",
    Choice(
        (
            "duplicated",
            "all_shared",
            "single_broadcast",
            "multi_broadcast",
            "shared_memory",
            "concurrent_broadcast",
        )
    ),
    "How members get their samples. duplicated: each rank preprocesses all of them. all_shared: each rank "
    "preprocesses its part; an allgather gives all parts to all ranks. single_broadcast: an allgather among the "
    "ranks that preprocess, then a broadcast from the last of them to the rest. multi_broadcast: each rank that "
    "preprocesses broadcasts its part to all. shared_memory: the ranks that preprocess write into a ring buffer in "
    "their node's shared memory, from which all its ranks read. concurrent_broadcast: as multi_broadcast, with the "
    "broadcasts at the same time, by MPI_Ibcast; needs Open MPI and a launcher that starts ranks with it.",
    default="duplicated",
    refuse=_refuse_input_sharing,
    refuse_on=_refuse_input_sharing_on,
)

declare(
    "preprocessing_ranks",
    Count(0, 10_000),
    "Number of ranks that preprocess samples: the first ones; with shared_memory, the first ones of each node. "
    "0: all ranks, for input_sharing duplicated and all_shared only. The other ways need 1 or more.",
    default=0,
    unit="ranks",
    refuse=_refuse_preprocessing_ranks,
)

declare(
    "share_block_samples",
    Count(0),
    "Block size: number of samples that a rank preprocesses and shares at a time. 0: the batch size.",
    default=0,
    unit="samples",
    label="samples per block",
    refuse=_build_ensemble_refusal("share_block_samples"),
)

declare(
    "prefetch_blocks",
    Count(1, 10_000),
    "Number of blocks that a member can hold ready, besides those being shared. With shared_memory: the blocks of "
    "the ring buffer.",
    default=4,
    unit="blocks",
    label="blocks ready",
    refuse=_build_ensemble_refusal("prefetch_blocks"),
)

declare(
    "core_limit",
    Count(0, 10_000),
    "Number of cores that all ranks of a node may use together: the first of those that the host allows. 0: all.",
    default=0,
    unit="cores",
)

declare(
    "measure",
    Choice(("train", "peak_throughput", "compute_throughput")),
    "What is measured. train: training. peak_throughput: the rate at which samples reach a rank that does not "
    "train. compute_throughput: the rate of training on samples that are ready. Runs with one of the last two "
    "give no other timings.",
    default="train",
    refuse=_refuse_measure,
    observes=True,
)

declare(
    "compute",
    Choice(("measured", "simulated")),
    "measured: members train. simulated: members wait as long as an accelerator of a given rate would take, and "
    "nothing is trained; such a run gives rates and times of the input only.",
    default="measured",
    observes=True,
    idle=_explain_idle_compute,
)

declare(
    "simulated_samples_per_s",
    Number(),
    "Rate of each member's simulated accelerator. Needs compute: simulated.",
    default=0.0,
    unit="samples/s",
    label="simulated rate (samples/s)",
    refuse=_refuse_simulated_rate,
    idle=_explain_idle_compute,
)
