"""The arms that a grid's ``tuning`` declares: alternatives to each of its points, their common baseline."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from study.core.errors import StudyError
from study.experiment.parameters import list_observing_keys
from study.experiment.study import BASELINE, Arm, PlannedRun
from study.workloads.command.own_parameters import NAME as PROGRAM_PARAMETERS

# Keys that an arm cannot set: its runs would train something else than the baseline's.
WORKLOAD = ("benchmark", "dataset", "gpus", "ensemble", "members")
Arms = Mapping[str, Mapping[str, Any]]  # name -> {grid key: value}


def get_arms(grid: Mapping[str, Any], place: str) -> Arms:
    """The arms of a grid that satisfies the schema; raises `StudyError` for keys that an arm cannot set."""
    arms: Arms = grid.get("tuning", {})
    for name, changes in arms.items():
        if name == BASELINE:
            raise StudyError(f"{place}.tuning.{name}: is the name of the grid's own point; choose another name")
        for key in changes:
            if key in WORKLOAD:
                why = f"an arm trains the baseline's workload on the same number of ranks; set {key} in the grid"
                raise StudyError(f"{place}.tuning.{name}.{key}: {why}")
            if key in list_observing_keys():
                why = "runs with this key give no timings to compare; leave it out"
                raise StudyError(f"{place}.tuning.{name}.{key}: {why}")
    return arms


def plan_arms(plan_run: Callable[[Mapping[str, Any], str], PlannedRun], arms: Arms, place: str) -> Iterator[PlannedRun]:
    """Plan the runs of one point and repeat: the baseline, then its arms.

    Args:
        plan_run: from the keys that an arm changes, and the place for messages, to the run.
        arms: see `get_arms`.
        place: of the grid.

    Raises:
        StudyError: two of them are the same run.
    """
    baseline = plan_run({}, place)
    if not arms:
        yield baseline
        return
    yield dataclasses.replace(baseline, arms=(Arm(BASELINE, baseline.point, {}),))
    names = {baseline.key: "the baseline; for an A/A test, set control: 1"}
    for name, changes in arms.items():
        where = f"{place}.tuning.{name}"
        run = plan_run(changes, where)
        if run.key in names:
            raise StudyError(f"{where}.{next(iter(changes))}: this arm is the same run as {names[run.key]}")
        names[run.key] = f"arm '{name}'"
        changed = dict.fromkeys(key if key in run.parameters else PROGRAM_PARAMETERS for key in changes)
        switches = {key: (run[key], baseline[key]) for key in changed}
        yield dataclasses.replace(run, arms=(Arm(name, baseline.point, switches),))
