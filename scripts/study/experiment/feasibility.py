"""Refuse points that cannot run, or that would differ from the papers' method, before anything is submitted."""

import math
from collections.abc import Iterable

from study.core import checked
from study.core.errors import StudyError
from study.core.wording import counted
from study.experiment import programs
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.workloads import command


class UnsharedEpochs(StudyError):
    """The run's epochs cannot be shared among its ranks."""


def check(run: PlannedRun, place: str) -> None:
    """Raise `StudyError` with the key and the reason if a point cannot run. place: its grid, for messages."""
    _check_epochs(run, place)
    _check_batch(run, place)
    is_command = run.kind == command.KIND
    if is_command:
        programs.check(run, place)
    for name, parameter in PARAMETERS.items():
        if is_command and name not in programs.OBEYED:
            continue
        reason = parameter.refuse(run) if parameter.refuse else None
        if reason:
            raise StudyError(f"{place}.{name}: {reason}")


def refuse_idle(runs: Iterable[PlannedRun], keys: Iterable[str], place: str) -> None:
    """Raise `StudyError` for one of ``keys`` that has no effect in any run with another value than the default.

    Args:
        runs: of a grid, or of one of its arms.
        keys: that the grid or the arm gives.
        place: of it, for messages.
    """
    runs = list(runs)
    for parameter in (PARAMETERS[name] for name in keys if name in PARAMETERS):
        changed = [run for run in runs if run[parameter.name] != parameter.default]
        if parameter.idle is None or not changed:
            continue
        reasons = [parameter.idle(run) for run in changed]
        if all(reasons):
            value = checked.as_written(changed[0][parameter.name])
            raise StudyError(f"{place}.{parameter.name}: {value} has no effect: {reasons[0]}; leave it out")


def _check_epochs(run: PlannedRun, place: str) -> None:
    epochs, ranks, minimum = run["epochs"], run.trained_ranks, run.spec["epochs"]["minimum_per_rank"]
    key = "gpus" if run["emulated_ranks"] == 1 else "emulated_ranks"
    if run.divides_epochs and epochs % ranks:
        near = sorted(_divisors(epochs), key=lambda n: abs(math.log(n / ranks)))[:2]
        raise UnsharedEpochs(
            f"{place}.{key}: {ranks}: {epochs} epochs cannot be divided evenly among {ranks} ranks "
            f"(strong scaling); nearest that can: {' or '.join(map(str, sorted(near)))}"
        )
    if run.epochs_per_rank < minimum:
        raise UnsharedEpochs(
            f"{place}.{key}: {ranks}: {run.epochs_per_rank} epochs a rank; {run['benchmark']} needs at least {minimum}"
        )


def _divisors(number: int) -> set[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return {*small, *(number // n for n in small)}


def _check_batch(run: PlannedRun, place: str) -> None:
    samples = run.samples_per_rank
    if samples is not None and run.batch_size_per_rank > samples:
        share = "" if run["sharding"] == "none" else " of a rank's part (sharding: by_rank)"
        raise StudyError(
            f"{place}.batch_size: {run.batch_size_per_rank} on {counted(run.trained_ranks, 'rank')} "
            f"is larger than the {samples} training samples{share}"
        )
