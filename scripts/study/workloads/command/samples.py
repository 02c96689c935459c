"""How many samples and steps an epoch of a program has: by its benchmark's file, and by what the program reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study.workloads import command

MOST_APART = 10  # times as many samples as the benchmark's file says, or as few, are doubted
LEFT_OUT = 0.05  # of an epoch's samples: so many may be left out by drop_last without it being known


@dataclass(frozen=True)
class Epoch:
    """The work of an epoch.

    Args:
        train_samples: of the whole set; None if neither the benchmark's file nor the program says it.
        samples_per_rank: that a rank trains, the mean of all ranks.
        steps: of a rank; None if the batch size is not known.
        share: of the samples that are trained; less than 1 where those that fill no batch are left out.
        remarks: on numbers that disagree.
        doubt: why it is not known how many samples are trained; None if it is.
    """

    train_samples: int | None
    samples_per_rank: int | None
    steps: int | None
    share: float
    remarks: tuple[str, ...] = ()
    doubt: str | None = None


def count_epoch(
    spec: Mapping[str, Any], parameters: Mapping[str, Any], ranks: int, batch: int, sizes: Mapping[str, Sequence[int]]
) -> Epoch:
    """Count the samples and steps of an epoch.

    Args:
        spec: the benchmark's YAML, or its part in a run's definition.
        parameters: {grid key: value} of the run.
        ranks: of the run.
        batch: batch size of a rank, by the run's definition.
        sizes: {name: what each rank that reported it said}, see `study.workloads.command.events`.
    """
    whole, remarks, doubt = _count_samples(spec, parameters, ranks, sizes.get("train_samples", ()))
    of_rank = command.count_rank_samples(whole, parameters["scaling"], parameters["work"], ranks)
    if whole is None or of_rank is None:
        return Epoch(None, None, None, 1.0)
    total, trained, step = of_rank * ranks, _get_first(sizes, "trained_samples"), _get_first(sizes, "global_batch_size")
    is_known = command.is_batch_known(spec, parameters["batch_size"])
    if step and is_known and step != batch * ranks:
        remarks.append(f"global_batch_size: the program reported {step}, which is used; the run's is {batch * ranks}")
    step = step or (batch * ranks if is_known else None)
    if trained:
        return Epoch(whole, trained // ranks or 1, math.ceil(trained / step) if step else None, trained / total,
                     (*remarks,), doubt)  # fmt: skip
    if step is None:
        return Epoch(whole, of_rank, None, 1.0, (*remarks,), doubt)
    in_batches, drops = total // step * step, spec.get("drop_last")
    if drops:
        if not in_batches:
            doubt = doubt or f"drop_last: {total} samples fill no batch of {step}, so that nothing is trained"
        return Epoch(whole, in_batches // ranks or of_rank, in_batches // step, in_batches / total, (*remarks,), doubt)
    divides = parameters["scaling"] == "strong" and parameters["work"] in (command.SAMPLES, command.FIXED)
    is_unknown = drops is None and divides and "steps_per_rank" not in command.list_placeholders(spec)
    if is_unknown and total - in_batches > LEFT_OUT * total:
        doubt = doubt or (
            f"{total - in_batches} of an epoch's {total} samples fill no batch of {step}, and whether they are trained "
            "is not known; say drop_last: true or false in the benchmark's file, or report trained_samples"
        )
    return Epoch(whole, of_rank, math.ceil(total / step), 1.0, (*remarks,), doubt)


def _count_samples(
    spec: Mapping[str, Any], parameters: Mapping[str, Any], ranks: int, reported: Sequence[int]
) -> tuple[int | None, list[str], str | None]:
    """(Samples of the whole set or None, remarks, why they are not known or None). reported: by the program."""
    declared = spec["workload"]["train_samples"]
    if not reported or reported[0] == declared:
        return declared, [], None
    share = command.count_rank_samples(declared, parameters["scaling"], parameters["work"], ranks)
    if declared is None or share is None:
        return reported[0], [], None
    # Ranks that divide the samples may each report their own part.
    are_parts = all(abs(each - declared / ranks) < 1 for each in reported) or sum(reported) == declared
    if share < declared and are_parts:
        remark = f"train_samples: the program reported {reported[0]}, which is taken for a rank's part of {declared}"
        return declared, [remark], None
    may_be_part = share < declared and max(reported) * ranks <= declared * (1 + LEFT_OUT)
    if may_be_part or not declared / MOST_APART <= reported[0] <= declared * MOST_APART:
        problem = f"which is neither the {declared} of the benchmark's file (workload) nor a rank's part of them"
        return reported[0], [], f"train_samples: the program reported {reported[0]}, {problem}; correct one of them"
    used = f"train_samples: the program reported {reported[0]}, which is used"
    return reported[0], [f"{used}; the benchmark's file says {declared} (workload)"], None


def _get_first(sizes: Mapping[str, Sequence[int]], name: str) -> int | None:
    """A size as the first rank reported it; None if none did, or if it is 0."""
    return next(iter(sizes.get(name, ())), None) or None
