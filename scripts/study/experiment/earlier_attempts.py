"""Other attempts of runs than the one that counts: put aside when their block ran again, or when it was worse."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import paths
from study.experiment.study import PlannedRun

KEY = "repeat_disturbed"  # of the machine's file: how many further attempts a block may have


def list_other_attempts(runs: Iterable[PlannedRun], results: str | Path) -> dict[str, list[int]]:
    """Numbers of the attempts put aside, ascending, of the runs that have any, by directory.

    results: ``results/<machine>``.
    """
    folders = {int(path.name): path for path in Path(results, paths.ATTEMPTS).glob("[1-9]*") if path.name.isdecimal()}
    numbers: dict[str, list[int]] = {}
    for run in runs if folders else ():
        attempts = [number for number, path in folders.items() if Path(paths.locate_run(path, run.directory)).is_dir()]
        if attempts:
            numbers[run.directory] = sorted(attempts)
    return numbers


def count_other_attempts(runs: Iterable[PlannedRun], results: str | Path) -> dict[str, int]:
    """Number of attempts put aside, of the runs that have any, by directory. results: ``results/<machine>``."""
    return {directory: len(numbers) for directory, numbers in list_other_attempts(runs, results).items()}


def find_attempt_in_place(others: Iterable[int]) -> int:
    """Number of the attempt in a run's own directory: the first that is not among the ``others``."""
    return next(number for number in itertools.count(1) if number not in set(others))


def override_further_attempts(machine: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The machine's file with the number of further attempts of ``config/config.yaml`` or ``--config``, if given."""
    return {**machine, KEY: config[KEY]} if KEY in config else machine
