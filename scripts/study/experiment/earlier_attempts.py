"""How many earlier attempts a run has: those that were put aside when its block ran again."""

from collections.abc import Iterable
from pathlib import Path

from study.core import paths
from study.experiment.study import PlannedRun


def numbers(runs: Iterable[PlannedRun], results: str | Path) -> dict[str, int]:
    """{directory: how many earlier attempts a run has}, of runs that have any. results: ``results/<machine>``."""
    folders = {int(path.name): path for path in Path(results, paths.ATTEMPTS).glob("[1-9]*") if path.name.isdecimal()}
    found = {}
    for run in runs if folders else ():
        there = [number for number, path in folders.items() if Path(paths.run_folder(path, run.directory)).is_dir()]
        if there:
            found[run.directory] = max(there)
    return found
