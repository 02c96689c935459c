"""Members of an ensemble with networks or numbers of ranks of their own: what they train, and what cannot be combined.

All members train on the samples of the run's own benchmark. The network of another benchmark can be a member if that
benchmark arranges its samples by the same code, and its YAML makes the same samples of the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from study import workloads
from study.core import checked, configuration
from study.core.errors import StudyError
from study.core.wording import counted
from study.experiment.ensemble import NEVER, OF_SAMPLES, Member, as_text, networks_of, ranks_of
from study.workloads import images

if TYPE_CHECKING:
    from study.experiment.parameter import Parameter
    from study.experiment.study import Dataset, PlannedRun

# Of a benchmark: the code that makes its samples, and the keys of its YAML that this code reads, or all members share.
CODE = ("arrange", "preprocess", "samples", "scalers", "open")
KEYS = ("files", "validation_share", "shuffle", "loss", "unmatched_at_most")
WEAK = "weak"


def spec_of(name: str, dataset: Dataset) -> dict[str, Any]:
    """The YAML of a benchmark, with what a dataset says of the network's input; raises `StudyError` without one."""
    return images.with_input(configuration.load_named("benchmarks", name), dataset.definition)


def specs(run: PlannedRun) -> dict[str, dict[str, Any]]:
    """{benchmark: its YAML, as `spec_of`} of those beside the run's own whose networks the members train."""
    return {name: spec_of(name, run.dataset) for name in networks_of(run.parameters)}


def refused_ranks(run: PlannedRun) -> str | None:
    """Why the members cannot have different numbers of ranks in a run; None if they can, or if the numbers are equal.

    A member's epochs, batch size and part of the samples must not follow from its number of ranks.
    """
    ranks = ranks_of(run.parameters)
    if len(set(ranks)) == 1:
        return None
    told = f"the members have {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} ranks"
    if run["scaling"] != WEAK:
        return f"{told}, and scaling: {run['scaling']} would give them different epochs or batches; use scaling: weak"
    if run["sharding"] != "none":
        return f"{told}, so their parts of the samples (sharding: by_rank) differ; use sharding: none, or equal ranks"
    return None


def refused_network(run: PlannedRun, member: Member, ranks: int, parameters: Iterable[Parameter]) -> str | None:
    """Why a member cannot train the network of its benchmark on a run's samples; None if it can.

    ranks: of the member. parameters: all that are declared; what they refuse of a run, they refuse of a member alone.
    """
    name = member.benchmark or run.dataset.benchmark
    if name == run.dataset.benchmark:
        return None
    try:
        spec = spec_of(name, run.dataset)
        other = workloads.get(name, spec)
        reason = _other_samples(run, spec, other)
        if reason is None:
            checked.check(spec["model"], other.model_schema, "model")
            reason = _too_few(run, spec, other)
    except StudyError as error:
        reason = str(error)
    if reason:
        return f"benchmark: {name}: {reason}"
    alone = _alone(run, name, spec, ranks)
    for parameter in parameters:
        if parameter.refuse and (reason := parameter.refuse(alone)):
            return f"benchmark: {name}: {parameter.name}: {reason}"
    return None


def _other_samples(run: PlannedRun, spec: dict[str, Any], other: workloads.base.Workload) -> str | None:
    """Why the samples of another benchmark are not those of a run."""
    own_name, own = run.dataset.benchmark, workloads.get(run.dataset.benchmark, run.spec)
    if other.kind != own.kind:
        return f"trains on {other.kind}, and {own_name} on {own.kind}: members share samples; give two ensembles"
    differing = [each for each in CODE if getattr(type(other), each) is not getattr(type(own), each)]
    if differing:
        return (
            f"makes its samples by code of its own ({differing[0]}), and members share those of {own_name}; derive its "
            f"class from {own_name}'s, or give two ensembles"
        )
    for key in KEYS:
        if spec.get(key) != run.spec.get(key):
            return f"{key} is not that of {own_name}, and members share it; give two ensembles"
    for key in OF_SAMPLES:
        one, two = run.spec["model"].get(key), spec["model"].get(key)
        if one != two:
            return (
                f"model.{key} is {two}, and {one} in {own_name}: members share samples of one shape; give "
                f"{key} in datasets.{run.dataset.key}, or the same in both benchmarks"
            )
    return None


def _too_few(run: PlannedRun, spec: dict[str, Any], other: workloads.base.Workload) -> str | None:
    """Why a network is too deep for a run's samples, or needs more epochs."""
    if run.epochs_per_rank < (least := spec["epochs"]["minimum_per_rank"]):
        return f"needs at least {counted(least, 'epoch')}, and the run has {run.epochs_per_rank}; give more epochs"
    if isinstance(other, images.ImageWorkload):
        size, needed, what = spec["model"]["image_size"], other.minimum_size, "pixels (image_size)"
    else:
        size, needed, what = (run.dataset.shape or {}).get("features"), other.minimum_features, "features"
    if size is not None and size < needed:
        return f"its layers need {needed} {what}, and the samples have {size}; give a larger dataset"
    return None


def _alone(run: PlannedRun, name: str, spec: dict[str, Any], ranks: int) -> PlannedRun:
    """The run of a member by itself."""
    changed = {
        "benchmark": name,
        "ensemble": 1,
        "members": as_text([{}]),
        "member_ranks": ranks,
        "gpus": ranks,
        "input_sharing": "duplicated",
        "preprocessing_ranks": 0,
        "halving_epochs": NEVER,
        "on_member_failure": "end",
        "on_member_lag": "wait",
    }
    dataset = dataclasses.replace(run.dataset, benchmark=name, spec=spec)
    return dataclasses.replace(run, parameters={**run.parameters, **changed}, dataset=dataset)
