"""How many earlier attempts a run has: those that were put aside when its block ran again."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import paths
from study.experiment.study import PlannedRun

KEY = "repeat_disturbed"  # of the machine's file: how many further attempts a block may have


def numbers(runs: Iterable[PlannedRun], results: str | Path) -> dict[str, int]:
    """{directory: how many earlier attempts a run has}, of runs that have any. results: ``results/<machine>``."""
    folders = {int(path.name): path for path in Path(results, paths.ATTEMPTS).glob("[1-9]*") if path.name.isdecimal()}
    found = {}
    for run in runs if folders else ():
        there = [number for number, path in folders.items() if Path(paths.run_folder(path, run.directory)).is_dir()]
        if there:
            found[run.directory] = max(there)
    return found


def asked_for(machine: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The machine with the number of further attempts that ``config/config.yaml`` or ``--config`` names, if they do."""
    return {**machine, KEY: config[KEY]} if KEY in config else machine
