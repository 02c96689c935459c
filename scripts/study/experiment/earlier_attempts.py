"""Earlier attempts of runs: those that were put aside when their block ran again."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import paths
from study.experiment.study import PlannedRun

KEY = "repeat_disturbed"  # of the machine's file: how many further attempts a block may have


def count_earlier_attempts(runs: Iterable[PlannedRun], results: str | Path) -> dict[str, int]:
    """Number of earlier attempts of the runs that have any, {directory: number}. results: ``results/<machine>``."""
    folders = {int(path.name): path for path in Path(results, paths.ATTEMPTS).glob("[1-9]*") if path.name.isdecimal()}
    counts = {}
    for run in runs if folders else ():
        attempts = [number for number, path in folders.items() if Path(paths.locate_run(path, run.directory)).is_dir()]
        if attempts:
            counts[run.directory] = max(attempts)
    return counts


def override_further_attempts(machine: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The machine's file with the number of further attempts of ``config/config.yaml`` or ``--config``, if given."""
    return {**machine, KEY: config[KEY]} if KEY in config else machine
