"""Refuse points that cannot run, or that would differ from the papers' method, before anything is submitted."""

import math
from collections.abc import Iterable

from study.core import validation
from study.core.errors import StudyError
from study.core.wording import format_count
from study.experiment import programs
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.workloads import command


class UnsharedEpochs(StudyError):
    """The run's epochs cannot be shared among its ranks."""


def check_run(run: PlannedRun, place: str) -> None:
    """Raise `StudyError` with the key and the reason if a point cannot run. place: its grid, for messages."""
    _check_epochs(run, place)
    _check_batch(run, place)
    is_command = run.kind == command.KIND
    if is_command:
        programs.check_run(run, place)
    for name, parameter in PARAMETERS.items():
        if is_command and name not in programs.OBEYED:
            continue
        reason = parameter.refuse(run) if parameter.refuse else None
        if reason:
            raise StudyError(f"{place}.{name}: {reason}")


def refuse_idle_keys(runs: Iterable[PlannedRun], keys: Iterable[str], place: str) -> None:
    """Raise `StudyError` for a key without effect in all of the runs that set it to another value than its default.

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
            value = validation.format_scalar(changed[0][parameter.name])
            raise StudyError(f"{place}.{parameter.name}: {value} has no effect: {reasons[0]}; leave it out")


def _check_epochs(run: PlannedRun, place: str) -> None:
    """Raise `UnsharedEpochs` if the epochs cannot be divided among the ranks, or a rank has too few."""
    epochs, ranks, minimum = run["epochs"], run.trained_ranks, run.spec["epochs"]["minimum_per_rank"]
    key = "gpus" if run["emulated_ranks"] == 1 else "emulated_ranks"
    if run.divides_epochs and epochs % ranks:
        near = sorted(_find_divisors(epochs), key=lambda n: abs(math.log(n / ranks)))[:2]
        raise UnsharedEpochs(
            f"{place}.{key}: {ranks}: {epochs} epochs cannot be divided evenly among {ranks} ranks "
            f"(strong scaling); nearest that can: {' or '.join(map(str, sorted(near)))}"
        )
    if run.epochs_per_rank < minimum:
        raise UnsharedEpochs(
            f"{place}.{key}: {ranks}: {run.epochs_per_rank} epochs a rank; {run['benchmark']} needs at least {minimum}"
        )


def _find_divisors(number: int) -> set[int]:
    """All divisors of a number."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return {*small, *(number // n for n in small)}


def _check_batch(run: PlannedRun, place: str) -> None:
    """Raise `StudyError` if the batch size of a rank is larger than its training samples."""
    samples = run.samples_per_rank
    if samples is not None and run.batch_size_per_rank > samples:
        share = "" if run["sharding"] == "none" else " of a rank's part (sharding: by_rank)"
        raise StudyError(
            f"{place}.batch_size: {run.batch_size_per_rank} on {format_count(run.trained_ranks, 'rank')} "
            f"is larger than the {samples} training samples{share}"
        )
