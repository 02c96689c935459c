"""Time limits of runs on a machine, and so the walltimes of their batch jobs.

The grid says it (``walltime_minutes``); else it follows from finished repeats of the run, or from a paper's times on
the same machine; else it is the machine's ``time_limit_s``, or more for a run whose counted operations need more. A
run that reaches a limit which was only estimated is no result: it runs again with more time, see
`study.launch.launch.set_aside_timed_out`.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.core import paths, validation
from study.core.errors import StudyError
from study.core.files import parse_json_file
from study.experiment import published_times
from study.experiment.ensemble import is_ensemble
from study.experiment.study import Dataset, PlannedRun
from study.machines import launchers, queues
from study.machines.queues import Timed
from study.workloads import command, operations

MORE = 1.5  # times the known time: the limit of a run
LEAST_MORE = 1.1  # at least, where a queue allows no more
LEAST_S = 300  # the shortest estimated limit
# Assumed; convolutional networks reach 0.3 of the peak on a K80 to 0.57 on a V100, by performance/public_series.csv.
UTILISATION = 0.4
GRID, REPEATS, PUBLISHED, MACHINE = "the grid", "finished repeats", "published times", "the machine's time_limit_s"
OPERATIONS = f"counted operations at an assumed {UTILISATION:.0%} of peak_flop_per_s_per_rank"
ESTIMATED = (REPEATS, PUBLISHED, OPERATIONS)


@dataclasses.dataclass(frozen=True)
class Limit(Timed):
    """The time limit of a run. source: where it comes from; known_s: the time (s) that it was estimated from."""

    source: str = MACHINE
    known_s: float | None = None

    @property
    def is_estimated(self) -> bool:
        """Whether a run that reaches it runs again with more time."""
        return self.source in ESTIMATED


class Limits:
    """The limits of a study's runs on a machine. folder: the machine's results folder."""

    def __init__(self, runs: Iterable[PlannedRun], folder: str, machine: dict[str, Any]):
        self._machine, self._folder = machine, Path(folder)
        self._repeats: dict[str, list[PlannedRun]] = {}
        for run in runs:
            self._repeats.setdefault(run.point, []).append(run)
        self._found: dict[str, Limit] = {}

    def get_limit(self, run: PlannedRun, again: bool = False) -> Limit:
        """The limit of a run, the same for all its repeats. again: whether it is determined anew, from its files."""
        if again or run.point not in self._found:
            self._found[run.point] = self._compute_limit(run)
        return self._found[run.point]

    def get_load_limit(self) -> Timed:
        """The limit of a loading measurement."""
        return Timed(1, self._machine["time_limit_s"])

    def _compute_limit(self, run: PlannedRun) -> Limit:
        """The limit by the grid, finished repeats, published times, counted operations or the machine's file."""
        machine, number = self._machine, run.count_processes(self._machine)
        by_machine = Limit(number, machine["time_limit_s"])
        if "scheduler" not in machine:  # there is no walltime to ask for
            return by_machine
        if run.walltime_minutes:
            return Limit(number, queues.compute_limit_s(run.walltime_minutes), GRID)
        took_s, too_short = self._find_finished_repeats(run)
        known_s, source = (took_s, REPEATS) if took_s else (published_times.estimate_runtime_s(run, machine), PUBLISHED)
        if known_s is None:
            known_s, source = estimate_by_operations_s(run, machine), OPERATIONS
            if known_s is None or known_s * MORE <= machine["time_limit_s"]:
                return by_machine
        limit_s = estimate_limit_s(known_s, number, machine)
        if limit_s is None:
            # With checkpoints, another job goes on where the time of one is over.
            return dataclasses.replace(
                by_machine, known_s=known_s, source=source if run["checkpoint_epochs"] else MACHINE
            )
        if too_short:
            longest_s = queues.find_longest_s(_choose_job_nodes(number, limit_s, machine) or 1, machine)
            more_s = machine["time_limit_s"] if machine["time_limit_s"] > limit_s else min(longest_s, 2 * limit_s)
            return dataclasses.replace(by_machine, limit_s=more_s, known_s=known_s)
        return Limit(number, limit_s, source, known_s)

    def _find_finished_repeats(self, run: PlannedRun) -> tuple[float | None, bool]:
        """(longest time (s) of a finished repeat, whether a repeat reached its limit)."""
        times, too_short = [], False
        for each in self._repeats.get(run.point, ()):
            folder = Path(paths.locate_run(self._folder, each.directory))
            too_short |= (folder / paths.TIMED_OUT).exists()
            try:
                outcome = validation.load_valid_json(folder / "outcome.json", "outcome")
                record = folder / "record.json"
                unproven = record.exists() and parse_json_file(record.read_bytes(), record).get("unproven")
            except StudyError:  # not there, or damaged, which is told where it is read
                continue
            too_short |= (outcome["failure"] or {}).get("kind") == "timeout"
            if outcome["status"] == "ok" and not unproven:
                times.append(outcome["runtime_s"])
        return max(times, default=None), too_short


def estimate_training_s(run: PlannedRun, machine: dict[str, Any]) -> tuple[float | None, str]:
    """(Seconds that a run's epochs take, without loading, or None; the source): published times, else operations."""
    published_s = published_times.estimate_training_s(run, machine)
    return (estimate_by_operations_s(run, machine), OPERATIONS) if published_s is None else (published_s, PUBLISHED)


def estimate_by_operations_s(run: PlannedRun, machine: dict[str, Any]) -> float | None:
    """Seconds that a run's epochs take at `UTILISATION` of its ranks' peak; None if either is not known."""
    peak, samples = machine.get("peak_flop_per_s_per_rank"), run.samples_per_rank
    if (
        peak is None
        or samples is None
        or run.dataset.shape is None
        or run.kind == command.KIND
        or is_ensemble(run.parameters)
    ):
        return None
    rate, flop = operations.choose_peak(peak, run["precision"]), _count_flop(run.dataset)
    return None if rate is None or flop is None else run.epochs_per_rank * samples * flop / (UTILISATION * rate)


@functools.cache
def _count_flop(dataset: Dataset) -> int | None:
    """Operations of training on one sample of a dataset; None if they are not known."""
    features = dataset.shape["features"] if dataset.shape else 0
    return operations.count_training_flop(dataset.benchmark, dataset.spec.get("model", {}), features)


def estimate_limit_s(known_s: float, ranks: int, machine: dict[str, Any]) -> float | None:
    """The limit (s), in whole minutes, of a run that took ``known_s`` before; None if no job may be so long."""
    least_s = max(LEAST_S, known_s * LEAST_MORE)
    nodes = _choose_job_nodes(ranks, least_s, machine)
    if nodes is None:
        return None
    longest_s = queues.find_longest_s(nodes, machine)
    if math.isinf(longest_s):  # the machine's file does not tell what its queue allows
        longest_s = machine["time_limit_s"]
    wanted_s = 60.0 * math.ceil(max(LEAST_S, known_s * MORE) / 60)
    return min(wanted_s, longest_s) if least_s <= longest_s else None


def _choose_job_nodes(ranks: int, limit_s: float, machine: dict[str, Any]) -> int | None:
    """Number of nodes of a job in which a run on so many ranks may take ``limit_s``; None if the queue has none."""
    return queues.choose_nodes(launchers.count_nodes(ranks, machine), queues.compute_job_minutes(limit_s), machine)
